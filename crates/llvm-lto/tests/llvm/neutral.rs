//! Code that is the same for several architectures: what counts as such, and that it really is.

use llvm_lto::{OptLevel, TargetSpec};

use crate::support::*;

/// PTX of a module for an architecture, without the line that names it.
fn generate(bitcode: &[u8], sm: u32, level: OptLevel) -> String {
    let spec = TargetSpec { cpu: format!("sm_{sm}"), features: format!("+ptx88,+sm_{sm}"), ..spec(level) };
    let mut session = linked(&[bitcode]);
    session.internalize(&names(&[])).unwrap();
    session.retarget(&spec.cpu, &spec.features).unwrap();
    session.run_passes(&spec, &format!("lto<O{}>", level.digit())).unwrap();
    let (text, _) = session.emit(&spec).unwrap();
    let text = String::from_utf8(text).unwrap();
    let target = format!("\n.target sm_{sm}");
    assert_eq!(text.matches(&target).count(), 1, "{text}");
    text.replace(&target, "")
}

fn check(bitcode: &[u8], expected: bool, what: &str) {
    let neutral = linked(&[bitcode]).is_architecture_neutral().unwrap();
    assert_eq!(neutral, expected, "{what}");
    if neutral {
        for level in [OptLevel::O0, OptLevel::O2, OptLevel::O3] {
            let first = generate(bitcode, 75, level);
            for sm in [80, 86, 87, 89, 90] {
                let other = generate(bitcode, sm, level);
                let different = first.lines().zip(other.lines()).find(|(one, two)| one != two);
                assert_eq!(different, None, "{what}: sm_{sm} differs from sm_75 at {level:?}");
                assert_eq!(first.len(), other.len(), "{what}: sm_{sm} differs from sm_75 at {level:?}");
            }
        }
    }
}

/// A kernel of which only the body is given, after the declarations that it needs.
fn check_body(expected: bool, declarations: &str, body: &str) {
    let kernel =
        format!("{declarations}\ndefine ptx_kernel void @k(ptr %p, ptr %q, i32 %i, i64 %j, float %f, double %d) {{\n{body}\nret void\n}}");
    check(&device(&kernel), expected, body);
}

#[test]
fn the_inputs_of_these_tests() {
    for file in ["calls.ll", "constants.ll", "bank.ll", "used.ll", "symbols.ll"] {
        check(&input(file), true, file);
    }
}

#[test]
fn arithmetic_that_every_architecture_has() {
    for (declarations, body) in [
        ("", "%x = mul i64 %j, 7 store i64 %x, ptr %p"),
        ("", "%x = fdiv float %f, 3.0 store float %x, ptr %p"),
        ("", "%x = fdiv fast float %f, %f %y = frem double %d, 2.0 store float %x, ptr %p store double %y, ptr %q"),
        ("", "%x = fptosi double %d to i32 %y = sitofp i32 %x to float store float %y, ptr %p"),
        ("", "%x = load <4 x float>, ptr %p %y = fadd <4 x float> %x, %x store <4 x float> %y, ptr %q"),
        ("", "%x = load <4 x i8>, ptr %p %y = add <4 x i8> %x, %x store <4 x i8> %y, ptr %q"),
        ("", "%x = sdiv i32 %i, 7 %y = icmp slt i32 %x, 3 %z = select i1 %y, float %f, float 1.0 store float %z, ptr %p"),
        (
            "declare float @llvm.fma.f32(float, float, float)",
            "%x = call float @llvm.fma.f32(float %f, float %f, float 2.0) store float %x, ptr %p",
        ),
        ("declare i32 @llvm.umin.i32(i32, i32)", "%x = call i32 @llvm.umin.i32(i32 %i, i32 9) store i32 %x, ptr %p"),
        (
            "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
            "call void @llvm.memcpy.p0.p0.i64(ptr align 4 %p, ptr align 4 %q, i64 100, i1 false)",
        ),
        ("declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()", "%x = call i32 @llvm.nvvm.read.ptx.sreg.tid.x() store i32 %x, ptr %p"),
        (
            "declare i32 @llvm.nvvm.shfl.sync.down.i32(i32, i32, i32, i32)",
            "%x = call i32 @llvm.nvvm.shfl.sync.down.i32(i32 -1, i32 %i, i32 1, i32 31) store i32 %x, ptr %p",
        ),
        ("", "call void asm sideeffect \"nanosleep.u32 $0;\", \"r\"(i32 %i)"),
    ] {
        if let Err(e) = std::panic::catch_unwind(|| check_body(true, declarations, body)) {
            eprintln!("{:?}", e.downcast_ref::<String>());
        }
    }
}

#[test]
fn what_is_selected_by_architecture() {
    for (declarations, body) in [
        ("", "%x = load half, ptr %p %y = fadd half %x, %x store half %y, ptr %p"),
        ("", "%x = load <2 x bfloat>, ptr %p %y = fadd <2 x bfloat> %x, %x store <2 x bfloat> %y, ptr %p"),
        ("", "%x = sext i64 %j to i128 %y = mul i128 %x, %x store i128 %y, ptr %p"),
        ("", "%x = load <2 x i16>, ptr %p %y = add <2 x i16> %x, %x store <2 x i16> %y, ptr %q"),
        (
            "declare <2 x i16> @llvm.smin.v2i16(<2 x i16>, <2 x i16>)",
            "%x = load <2 x i16>, ptr %p %y = call <2 x i16> @llvm.smin.v2i16(<2 x i16> %x, <2 x i16> splat (i16 3)) store <2 x i16> %y, ptr %q",
        ),
        ("declare i16 @llvm.smin.i16(i16, i16)", "%x = load i16, ptr %p %y = call i16 @llvm.smin.i16(i16 %x, i16 3) store i16 %y, ptr %q"),
        (
            "",
            "%x = load i16, ptr %p, align 4 %p1 = getelementptr i16, ptr %p, i64 1 %x1 = load i16, ptr %p1 %y = add i16 %x, 5 %y1 = add i16 %x1, 9 store i16 %y, ptr %q, align 4 %q1 = getelementptr i16, ptr %q, i64 1 store i16 %y1, ptr %q1",
        ),
        ("", "%x = load <2 x i8>, ptr %p %y = add <2 x i8> %x, %x store <2 x i8> %y, ptr %q"),
        ("", "fence acquire"),
        ("", "fence syncscope(\"block\") release"),
        ("", "%c = cmpxchg ptr %p, i16 1, i16 2 acquire monotonic"),
        ("", "%c = cmpxchg ptr %p, i8 1, i8 2 seq_cst seq_cst"),
        ("declare float @llvm.maximum.f32(float, float)", "%x = call float @llvm.maximum.f32(float %f, float 1.0) store float %x, ptr %p"),
        ("declare i32 @llvm.nvvm.redux.sync.add(i32, i32)", "%x = call i32 @llvm.nvvm.redux.sync.add(i32 %i, i32 -1) store i32 %x, ptr %p"),
        ("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)", "call void @llvm.prefetch.p0(ptr %p, i32 0, i32 3, i32 1)"),
    ] {
        check_body(false, declarations, body);
    }
}

/// Integers and floats of every width, operation, ordering, scope and space.
#[test]
fn atomics() {
    let integer = ["xchg", "add", "sub", "and", "nand", "or", "xor", "max", "min", "umax", "umin", "uinc_wrap", "udec_wrap"];
    let float = ["xchg", "fadd", "fsub", "fmax", "fmin"];
    for (kind, operations, value) in
        [("i8", &integer[..], "3"), ("i32", &integer, "3"), ("i64", &integer, "3"), ("float", &float, "3.0"), ("double", &float, "3.0")]
    {
        for space in ["ptr", "ptr addrspace(1)", "ptr addrspace(3)"] {
            let mut body = String::new();
            for (n, (operation, ordering)) in
                operations.iter().flat_map(|o| ["monotonic", "acquire", "release", "acq_rel", "seq_cst"].map(|r| (o, r))).enumerate()
            {
                let scope = ["", "syncscope(\"block\")", "syncscope(\"device\")"][n % 3];
                body += &format!("%r{n} = atomicrmw {operation} {space} %a, {kind} {value} {scope} {ordering}\n");
                body += &format!("store volatile {kind} %r{n}, ptr %p\n");
            }
            if ["i32", "i64"].contains(&kind) {
                body += &format!("%c = cmpxchg {space} %a, {kind} 1, {kind} 2 acquire monotonic\n");
            }
            if kind.starts_with('i') {
                body += &format!("%l = load atomic {kind}, {space} %a acquire, align 8\n");
                body += &format!("store atomic {kind} %l, {space} %a release, align 8\n");
            }
            let kernel = format!("define ptx_kernel void @k(ptr %p, {space} %a) {{\n{body}fence acq_rel\nfence seq_cst\nret void\n}}");
            check(&device(&kernel), true, &format!("{kind} {space}"));
        }
    }
}

/// A library's question for the architecture, which optimisation answers.
#[test]
fn a_question_for_the_architecture() {
    let question = "@arch = private unnamed_addr addrspace(1) constant [12 x i8] c\"__CUDA_ARCH\\00\"\ndeclare i32 @__nvvm_reflect(ptr)";
    let body = "%x = call i32 @__nvvm_reflect(ptr addrspacecast (ptr addrspace(1) @arch to ptr)) store i32 %x, ptr %p";
    let kernel = format!("{question}\ndefine ptx_kernel void @k(ptr %p) {{ {body} ret void }}");
    let bitcode = device(&kernel);
    assert_ne!(generate(&bitcode, 75, OptLevel::O2), generate(&bitcode, 90, OptLevel::O2));
    check(&bitcode, false, "__nvvm_reflect");
}
