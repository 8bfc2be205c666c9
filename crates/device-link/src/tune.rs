//! What ptxas makes of a program's kernels with fewer registers: the PTX is assembled again for every step, as a link with
//! `--warplink-kernel=PATTERN:maxnreg=N` would have it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use fatbin::cubin::Cubin;
use fatbin::{Arch, ptx};

use crate::command::{CommandLine, describe};
use crate::error::{Context, Error, Result};
use crate::lto::DEVICE_RUNTIME;
use crate::temps::Temps;

/// What a kernel came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of spill stores and loads, where the cubin notes them.
    pub spills: Option<fatbin::Spills>,
}

/// The text of one program and how it is assembled.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// PTX.
    pub text: &'a [u8],
    /// The architecture to assemble for.
    pub arch: Arch,
    /// The user's ptxas.
    pub ptxas: &'a Path,
    /// More arguments for it.
    pub arguments: &'a [OsString],
}

/// Assembles a program with limits on the registers of some kernels. `name` tells its files from those of other calls with the same `temps`.
///
/// # Errors
/// ptxas takes the text or the limits for wrong: its words.
pub fn assemble(program: &Program, limits: &BTreeMap<String, u32>, temps: &Temps, name: &str) -> Result<Vec<u8>> {
    let changed = ptx::with_register_limits(program.text, |kernel| limits.get(kernel).copied());
    let input = temps.write(&format!("{name}.ptx"), changed.as_deref().unwrap_or(program.text))?;
    let output = temps.path(&format!("{name}.cubin"))?;
    let mut command = CommandLine::new(program.ptxas);
    command.arg("-m64").arg("-arch").arg(program.arch.to_string());
    // Where functions stay, each is compiled once, as by a link that keeps them. Without any it makes no difference, and costs nothing.
    if has_functions(program.text) {
        command.arg("-c");
    }
    command.args.extend(program.arguments.iter().cloned());
    command.arg(&input).arg("-o").arg(&output);
    let finished = command.run_captured()?;
    if !finished.status.success() {
        let words = finished.output.replace(&input.display().to_string(), "its PTX");
        let words: String = words.trim().lines().take(5).map(|line| format!("\n>>> {line}")).collect();
        return Err(Error::new(format!("ptxas {}{words}", describe(finished.status))));
    }
    std::fs::read(&output).context(|| "ptxas made no output".to_owned())
}

/// What the kernels of a program come to with limits on the registers of some of them.
///
/// # Errors
/// As for [`assemble`]; what ptxas made is damaged.
pub fn measure(program: &Program, limits: &BTreeMap<String, u32>, temps: &Temps, name: &str) -> Result<BTreeMap<String, Measured>> {
    let bytes = assemble(program, limits, temps, name)?;
    let damaged = |error: fatbin::Error| Error::new(format!("what ptxas made: {error}"));
    let kernels = Cubin::parse(&bytes).map_err(damaged)?.kernels().map_err(damaged)?;
    Ok(kernels
        .into_iter()
        .filter_map(|kernel| Some((kernel.name.to_owned(), Measured { registers: kernel.registers?, spills: kernel.spills })))
        .collect())
}

/// Whether there is a function that is called, but for those that ptxas itself provides.
fn has_functions(text: &[u8]) -> bool {
    ptx::symbols(text).iter().any(|symbol| symbol.kind == ptx::SymbolKind::Function && !DEVICE_RUNTIME.contains(&symbol.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_ptxas_provides_are_none() {
        let head = ".version 8.0\n.target sm_90\n.address_size 64\n";
        for (text, expected) in [
            (".visible .entry k() { ret; }", false),
            (".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n.visible .entry k() { ret; }", false),
            (".func f() { ret; }\n.visible .entry k() { ret; }", true),
            (".extern .func f();\n.visible .entry k() { ret; }", true),
        ] {
            assert_eq!(has_functions(format!("{head}{text}").as_bytes()), expected, "{text}");
        }
    }
}
