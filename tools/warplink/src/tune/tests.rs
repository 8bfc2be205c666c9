//! `warplink tune` without a toolkit: what is known from the code alone, and what is asked.

use super::*;

fn kernel(name: &'static str, registers: u32) -> cubin::Kernel<'static> {
    cubin::Kernel {
        name,
        binding: cubin::Binding::Global,
        registers: Some(registers),
        max_registers: None,
        spills: Some(Spills::default()),
        stack: 0,
        shared: 0,
        constants: Vec::new(),
        parameters: None,
        code: 0,
        max_threads: None,
        required_threads: None,
        cluster: None,
        barriers: 0,
    }
}

fn args(line: &[&str]) -> Args {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }
    <Line as clap::Parser>::try_parse_from(["tune"].iter().chain(line)).unwrap().args
}

fn asked(kernel: &cubin::Kernel, line: &[&str], limited: bool) -> (Kernel, Vec<u32>) {
    let args = args(line);
    let tuner = Tuner::new(&args, &|_| None).unwrap();
    let found = Some(Found { registers: kernel.registers, limited });
    let mut asked = Asked { kernel: tuner.kernel(kernel, Arch::new(90)), found, text: None };
    let steps = asked.steps_to_ask();
    asked.conclude();
    (asked.kernel, steps)
}

#[test]
fn the_steps_near_a_kernel() {
    // RSBench on an H200.
    let (shown, steps) = asked(&kernel("k", 150), &["x"], false);
    let rows: Vec<_> = shown.steps.iter().map(|step| (step.maxnreg, step.blocks, step.warps, step.occupancy, step.now)).collect();
    assert_eq!(rows, [(64, 4, 32, 0.5, false), (80, 3, 24, 0.375, false), (128, 2, 16, 0.25, false), (255, 1, 8, 0.125, true)],);
    // Where it is nothing is to be asked: it is what it is.
    assert_eq!(steps, [64, 80, 128]);
    assert_eq!(shown.steps.iter().map(|step| step.registers).collect::<Vec<_>>(), [None, None, None, Some(150)]);
    assert_eq!(asked(&kernel("k", 40), &["x"], false).0.steps.iter().map(|step| step.maxnreg).collect::<Vec<_>>(), [32, 40, 48]);
    assert_eq!(asked(&kernel("k", 40), &["x", "--all"], false).0.steps.len(), 7);
    // One that is limited may become better with more.
    assert_eq!(asked(&kernel("k", 40), &["x"], true).1, [32, 48]);
    assert_eq!(asked(&kernel("k", 40), &["x"], false).1, [32]);
}

#[test]
fn who_says_how_large_a_block_is() {
    let of = |kernel: &cubin::Kernel, line: &[&str]| {
        let kernel = asked(kernel, line, false).0;
        (kernel.threads, kernel.threads_from)
    };
    let plain = kernel("k", 32);
    let bounded = cubin::Kernel { max_threads: Some([128, 2, 1]), ..plain.clone() };
    let required = cubin::Kernel { required_threads: Some([8, 8, 2]), ..bounded.clone() };
    assert_eq!(of(&plain, &["x"]), (256, ThreadsFrom::Assumed));
    assert_eq!(of(&plain, &["x", "--block=64"]), (64, ThreadsFrom::Given));
    assert_eq!(of(&bounded, &["x"]), (256, ThreadsFrom::LaunchBounds));
    assert_eq!(of(&bounded, &["x", "--block", "64"]), (64, ThreadsFrom::Given));
    assert_eq!(of(&required, &["x", "--block", "64"]), (128, ThreadsFrom::Required));
    let (shown, _) = asked(&cubin::Kernel { shared: 50 << 10, ..plain }, &["x", "--shared=51200"], false);
    assert_eq!((shown.shared, shown.steps[0].blocks), (100 << 10, 2));
}

#[test]
fn the_ptx_of_a_kernel_is_that_of_its_architecture() {
    let text = |target: &str, body: &str| {
        let mut code = Code::default();
        code.add_text(target, format!(".version 8.0\n.target {target}\n.address_size 64\n{body}\0\0").as_bytes());
        code.texts.remove(0)
    };
    let texts = [
        text("sm_80", ".visible .entry k() { ret; }"),
        text("sm_90", ".visible .entry k() { ret; }"),
        text("sm_90a", ".visible .entry k() { ret; }\n.visible .entry only() { ret; }"),
        text("sm_90", ".extern .entry only();"),
    ];
    let of = |kernel: &str, arch: &str| text_of(kernel, arch.parse().unwrap(), &texts).map(|text| text.origin.as_str());
    assert_eq!(of("k", "sm_90"), Some("sm_90"));
    assert_eq!(of("k", "sm_86"), Some("sm_80"));
    assert_eq!(of("k", "sm_90a"), Some("sm_90a"));
    assert_eq!(of("k", "sm_75"), None);
    assert_eq!(of("only", "sm_90"), None);
    assert_eq!(of("none", "sm_90"), None);
    assert!(!texts[0].bytes.contains(&0));
}

#[test]
fn what_people_read() {
    let (mut shown, _) = asked(&kernel("_Z5heavyPfi", 150), &["x"], false);
    shown.steps[2].fill(128, Some(Spills { stores: 8, loads: 16 }));
    shown.demangled = Some("heavy(float*, int)".to_owned());
    let image = Image { origin: "app".to_owned(), arch: "sm_90".to_owned(), multiprocessor: None, kernels: vec![shown] };
    let file = File { path: "app".to_owned(), images: vec![image], problems: vec!["app: something".to_owned()] };
    let mut out = Vec::new();
    report::render(&Report { schema: 1, files: vec![file] }, None, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for line in [
        "\nheavy(float*, int)\n  150 registers, no spills, blocks of 256 threads (assumed; --block says otherwise)\n",
        "MAXNREG  BLOCKS  WARPS  OCCUPANCY  REGS  SPILL STORES  SPILL LOADS\n",
        "      128       2     16       25 %   128             8           16\n",
        "      255       1      8       12 %   150             0            0  now\n",
        "  to try one: -Wl,--warplink-kernel=heavy:maxnreg=128\n",
        "\napp: something\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
