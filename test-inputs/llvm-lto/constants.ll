target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

; The pair that becomes one, with the greater alignment.
@same_first = internal unnamed_addr addrspace(4) constant [4 x i32] [i32 1, i32 2, i32 3, i32 4], align 4
@same_second = private unnamed_addr addrspace(4) constant [4 x i32] [i32 1, i32 2, i32 3, i32 4], align 16
; Each of these differs from it in what its name says.
@compared = internal addrspace(4) constant [4 x i32] [i32 1, i32 2, i32 3, i32 4], align 4
@compared_here = internal local_unnamed_addr addrspace(4) constant [4 x i32] [i32 1, i32 2, i32 3, i32 4], align 4
@written_by_host = internal unnamed_addr addrspace(4) externally_initialized constant [4 x i32] [i32 1, i32 2, i32 3, i32 4], align 4
@other_content = internal unnamed_addr addrspace(4) constant [4 x i32] [i32 1, i32 2, i32 3, i32 5], align 4
@other_type = internal unnamed_addr addrspace(4) constant [2 x i64] [i64 8589934593, i64 17179869187], align 8
@other_space = internal unnamed_addr addrspace(1) constant [4 x i32] [i32 1, i32 2, i32 3, i32 4], align 4
@not_local = unnamed_addr addrspace(4) constant [4 x i32] [i32 1, i32 2, i32 3, i32 4], align 4
@not_constant = internal unnamed_addr addrspace(4) global [4 x i32] [i32 1, i32 2, i32 3, i32 4], align 4
@in_section = internal unnamed_addr addrspace(4) constant [4 x i32] [i32 1, i32 2, i32 3, i32 4], section "mine", align 4

define ptx_kernel void @kernel(ptr %out, i64 %i) {
  %a = getelementptr inbounds i32, ptr addrspacecast (ptr addrspace(4) @same_first to ptr), i64 %i
  %b = getelementptr inbounds i32, ptr addrspacecast (ptr addrspace(4) @same_second to ptr), i64 %i
  call void @keep(ptr %a)
  call void @keep(ptr %b)
  call void @keep(ptr addrspacecast (ptr addrspace(4) @compared to ptr))
  call void @keep(ptr addrspacecast (ptr addrspace(4) @compared_here to ptr))
  call void @keep(ptr addrspacecast (ptr addrspace(4) @written_by_host to ptr))
  call void @keep(ptr addrspacecast (ptr addrspace(4) @other_content to ptr))
  call void @keep(ptr addrspacecast (ptr addrspace(4) @other_type to ptr))
  call void @keep(ptr addrspacecast (ptr addrspace(1) @other_space to ptr))
  call void @keep(ptr addrspacecast (ptr addrspace(4) @not_local to ptr))
  call void @keep(ptr addrspacecast (ptr addrspace(4) @not_constant to ptr))
  call void @keep(ptr addrspacecast (ptr addrspace(4) @in_section to ptr))
  ret void
}

define internal void @keep(ptr %p) noinline {
  store volatile ptr %p, ptr addrspacecast (ptr addrspace(1) @sink to ptr), align 8
  ret void
}

@sink = addrspace(1) global ptr null, align 8
