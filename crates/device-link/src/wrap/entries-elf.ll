; Finds the entries in ELF: by name.
;
; LLVM's wrapper walks from __start_ to __stop_llvm_offload_entries. That loses entries in silence where the linker keeps no section alive
; for the sake of such symbols (lld's --gc-sections) or keeps parts of one name but different flags apart (mold, for objects with and
; without -fPIC). Every entry has a weak symbol of its own, so here each is named: a reference that every linker understands. It is hidden,
; so that no other shared object's entry of the same name takes its place, and weak, so that an entry in an archive member that stays out
; of the link is null.

@.cuda.entries = external hidden constant [0 x ptr], align 8
@.cuda.entry_count = external hidden constant i64, align 8

define internal void @.cuda.globals_reg(ptr %handle) nounwind section ".text.startup" {
begin:
  %count = load i64, ptr @.cuda.entry_count, align 8
  %any = icmp ne i64 %count, 0
  br i1 %any, label %each, label %done

each:
  %index = phi i64 [ 0, %begin ], [ %following, %next ]
  %slot = getelementptr inbounds ptr, ptr @.cuda.entries, i64 %index
  %at = load ptr, ptr %slot, align 8
  %absent = icmp eq ptr %at, null
  br i1 %absent, label %next, label %present

present:
  call void @.cuda.entry_reg(ptr %handle, ptr %at)
  br label %next

next:
  %following = add nuw i64 %index, 1
  %more = icmp ult i64 %following, %count
  br i1 %more, label %each, label %done

done:
  ret void
}
