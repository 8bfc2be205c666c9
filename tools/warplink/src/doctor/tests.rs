//! `warplink doctor` on machines made up here: toolkits and drivers as files, PATH programs as scripts.

use super::*;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

struct Machine {
    dir: tempfile::TempDir,
    variables: BTreeMap<&'static str, OsString>,
}

impl Machine {
    fn new() -> Machine {
        let dir = tempfile::tempdir().expect("tempdir");
        let variables =
            BTreeMap::from([("PATH", dir.path().join("bin").into_os_string()), ("CUDA_PATH", dir.path().join("cuda").into_os_string())]);
        Machine { dir, variables }
    }

    fn file(self, name: &str, text: &str) -> Machine {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("directory");
        std::fs::write(&path, text).expect(name);
        self
    }

    /// A program that prints `text` and ends with `code`.
    fn program(self, name: &str, text: &str, code: i32) -> Machine {
        let machine = self.file(name, &format!("#!/bin/sh\nprintf '%s\\n' '{text}'\nexit {code}\n"));
        let path = machine.dir.path().join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect(name);
        machine
    }

    fn toolkit(self, release: &str, number: u32) -> Machine {
        let said = format!("Cuda compilation tools, release {release}, V{release}.1");
        let machine = self.program("cuda/bin/ptxas", &said, 0).program("cuda/bin/nvlink", &said, 0);
        machine.file("cuda/include/cuda.h", &format!("#define CUDA_VERSION {number}\n")).file("cuda/lib64/libcudart_static.a", "")
    }

    fn report(&self) -> Report {
        let variables = self.variables.clone();
        examine(None, &move |name: &str| variables.get(name).cloned(), &self.dir.path().join("proc"))
    }

    /// The problems, with the machine's directory as `DIR`.
    fn problems(&self) -> Vec<String> {
        let dir = self.dir.path().display().to_string();
        let said = |problem: &Problem| format!("{:?}: {}", problem.severity, problem.text.replace(&dir, "DIR"));
        self.report().problems.iter().map(said).collect()
    }
}

fn good() -> Machine {
    Machine::new().toolkit("13.0", 13000).program("bin/ld", "GNU ld 2.40", 0)
}

#[test]
fn a_good_machine_has_no_problems() {
    let machine = good().program("bin/nvidia-smi", "NVIDIA H200, 9.0, 580.65.06", 0).program("bin/clang++", "clang version 22.1.8", 0);
    let report = machine.report();
    assert_eq!(report.problems, []);
    let text = render(&report);
    for line in [
        "toolkit      DIR/cuda (CUDA 13.0)\n",
        "             libcudart_static.a: DIR/cuda/lib64/libcudart_static.a\n",
        "             libcudadevrt.a: not there\n",
        "ptxas        DIR/cuda/bin/ptxas (Cuda compilation tools, release 13.0, V13.0.1)\n",
        "ld           DIR/bin/ld (GNU ld 2.40)\n",
        "clang++      DIR/bin/clang++ (clang version 22.1.8)\n",
        "driver       580.65.06 (from nvidia-smi)\n",
        "gpu          NVIDIA H200 (sm_90)\n",
        "fits         ptxas makes code for sm_75 and newer and reads PTX up to ISA 9.0\n",
        "fits         driver r580 runs programs of CUDA 13.x and older and compiles PTX up to ISA 9.0\n",
        "no problems\n",
    ] {
        let line = line.replace("DIR", &machine.dir.path().display().to_string());
        assert!(text.contains(&line), "{line:?} in {text}");
    }
}

#[test]
fn what_does_not_fit_is_told() {
    let smi = |machine: Machine, line: &str| machine.program("bin/nvidia-smi", line, 0).problems();
    let ld = |machine: Machine| machine.program("bin/ld", "GNU ld 2.40", 0);
    assert_eq!(
        smi(good(), "NVIDIA A100, 8.0, 535.104.05"),
        [
            "Warning: programs linked with CUDA 13.0 need a driver of branch r580 or newer; this one is 535.104.05",
            "Warning: this driver compiles PTX up to ISA 8.2, and code may need up to ISA 9.0 of CUDA 13.0",
        ]
    );
    assert_eq!(smi(good(), "V100, 7.0, 580.65.06"), ["Warning: CUDA 13.0 makes no code for this machine's V100 (sm_70)"]);
    assert_eq!(
        smi(ld(Machine::new().toolkit("12.4", 12040)), "RTX 5090, 12.0, 580.65.06"),
        ["Warning: CUDA 12.4 does not know this machine's RTX 5090 (sm_120), which only PTX for older GPUs runs on"]
    );
    assert_eq!(
        good().program("bin/clang++", "clang version 15.0.7", 0).problems(),
        [format!("Warning: objects of clang 15 may not be readable: the LLVM in warplink is {}", good().report().llvm)]
    );
    assert_eq!(
        good().program("bin/nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch", 18).problems(),
        ["Warning: nvidia-smi exited with code 18: Failed to initialize NVML: Driver/library version mismatch"]
    );
}

#[test]
fn the_kernel_module_answers_where_nvidia_smi_is_not() {
    let version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sat\n";
    let report =
        good().file("proc/version", version).file("proc/gpus/0000:01:00.0/information", "Model: \t NVIDIA H200\nIRQ: 1\n").report();
    assert_eq!(report.driver.map(|driver| (driver.branch, driver.source)), Some((580, "the kernel module")));
    assert_eq!(report.gpus, [driver::Gpu { name: "NVIDIA H200".to_owned(), arch: None }]);
    assert_eq!(report.problems, []);
}

#[test]
fn what_makes_links_fail_is_an_error() {
    let mut machine = good();
    machine.variables.insert("WARPLINK_JOBS", "many".into());
    assert_eq!(machine.problems(), ["Error: WARPLINK_JOBS=many: expected a positive integer or 'jobserver', got 'many'"]);
    let mut machine = good();
    machine.variables.insert("WARPLINK_CUDA_PATH", "/no/such/toolkit".into());
    assert!(machine.problems().iter().any(|text| text.starts_with("Error: /no/such/toolkit: no ptxas in this toolkit")));
    machine.variables.remove("WARPLINK_CUDA_PATH");
    machine.variables.insert("CUDA_PATH", "/no/such/toolkit".into());
    let text = "Warning: CUDA_PATH names no toolkit: /no/such/toolkit/bin/ptxas is not there";
    assert!(machine.problems().iter().any(|problem| problem == text));
    let bare = Machine::new().toolkit("13.0", 13000);
    assert_eq!(bare.problems(), ["Error: host linker 'ld' not found on PATH"]);
    let machine = good();
    std::fs::remove_file(machine.dir.path().join("cuda/bin/nvlink")).expect("nvlink");
    std::fs::remove_file(machine.dir.path().join("cuda/lib64/libcudart_static.a")).expect("library");
    assert_eq!(
        machine.problems(),
        [
            "Warning: nvlink not found beside ptxas: objects of nvcc or without -foffload-lto cannot be linked",
            "Warning: the toolkit has no CUDA runtime (libcudart_static.a, libcudart.so) to link programs with",
        ]
    );
}

#[test]
fn the_json_output_has_the_documented_fields() {
    let page = include_str!("../../../../docs/doctor.md");
    let rows = page.lines().filter_map(|row| Some(row.strip_prefix("| `")?.split_once('`')?.0.to_owned()));
    let documented: BTreeSet<String> = rows.collect();
    let machine = good().program("bin/nvidia-smi", "A100, 8.0, 535.104.05", 0);
    let mut report = machine.report();
    report.toolkit.searched.push("somewhere".to_owned());
    let mut found = BTreeSet::new();
    crate::inspect::json_fields(&serde_json::to_value(&report).expect("json"), "", &mut found);
    assert_eq!(found, documented);
}
