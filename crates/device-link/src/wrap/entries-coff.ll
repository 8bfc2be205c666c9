; Finds the entries in COFF: between two marks, as LLVM's wrapper does. Linkers sort the parts of a section by what follows the `$`: clang
; puts entries into `$OE`, the marks are in `$OA` and `$OZ`.
;
; By name, as in ELF, they cannot be found: a weak reference brings a default along, clang's weak entry is such a reference itself, and
; link.exe takes two with different defaults for a duplicate symbol. Nor is it needed: no COFF linker drops what is in no COMDAT.
;
; link.exe /INCREMENTAL fills up with zeros between objects; they are skipped.

@.cuda.entries_start = external hidden constant [0 x i8], align 8
@.cuda.entries_stop = external hidden constant [0 x i8], align 8
@.cuda.old_entries_start = external hidden constant [0 x i8], align 8
@.cuda.old_entries_stop = external hidden constant [0 x i8], align 8

define internal void @.cuda.globals_reg(ptr %handle) nounwind section ".text.startup" {
  call void @.cuda.range_reg(ptr %handle, ptr @.cuda.entries_start, ptr @.cuda.entries_stop)
  call void @.cuda.range_reg(ptr %handle, ptr @.cuda.old_entries_start, ptr @.cuda.old_entries_stop)
  ret void
}

define internal void @.cuda.range_reg(ptr %handle, ptr %start, ptr %stop) nounwind noinline section ".text.startup" {
begin:
  br label %test

test:
  %at = phi ptr [ %start, %begin ], [ %next.at, %next ]
  %inside = icmp ult ptr %at, %stop
  br i1 %inside, label %each, label %done

each:
  %first = load i64, ptr %at, align 1
  %is.old = icmp ne i64 %first, 0
  br i1 %is.old, label %entry, label %zeros

zeros:
  %rest.at = getelementptr inbounds i8, ptr %at, i64 8
  %has.rest = icmp ult ptr %rest.at, %stop
  br i1 %has.rest, label %probe, label %done

probe:
  %rest = load i32, ptr %rest.at, align 1
  ; Version and kind of a new entry are small numbers and not zero; what else can follow a filling zero is another, or an old entry's address.
  %high = and i32 %rest, -983056
  %are.small = icmp eq i32 %high, 0
  %version = and i32 %rest, 15
  %has.version = icmp ne i32 %version, 0
  %kind = lshr i32 %rest, 16
  %has.kind = icmp ne i32 %kind, 0
  %both = and i1 %has.version, %has.kind
  %is.entry = and i1 %both, %are.small
  br i1 %is.entry, label %entry, label %next

entry:
  %size = phi i64 [ 32, %each ], [ 56, %probe ]
  call void @.cuda.entry_reg(ptr %handle, ptr %at)
  br label %next

next:
  %step = phi i64 [ 8, %probe ], [ %size, %entry ]
  %next.at = getelementptr inbounds i8, ptr %at, i64 %step
  br label %test

done:
  ret void
}
