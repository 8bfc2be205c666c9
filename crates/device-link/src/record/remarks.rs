//! Optimisation remarks: which ones the line asks for, and from the YAML of each architecture one file and one list. What several
//! architectures have in common is said once; which ones is an argument of the remark (`Arch`), as YAML readers know no other place for it.

use std::collections::HashMap;
use std::path::PathBuf;

use llvm_lto::{RemarkPatterns, Session};

use super::{Recorder, Remark};
use crate::diagnostics::Diagnostics;
use crate::error::{Context, Result, bail};
use crate::names;
use crate::options::Options;

/// The passes whose remarks a report shows where nobody asked for others: LLVM makes some hundred thousand about a large program.
const REPORTED: &str = "^(inline|loop-unroll|loop-vectorize|slp-vectorizer|licm)$";

/// What the line says about remarks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Messages: `-Rpass=` and its kin.
    pub shown: RemarkPatterns,
    /// The file: `-foptimization-record-file=`, `opt-remarks-filename=`.
    pub file: Option<PathBuf>,
    /// `-fsave-optimization-record`: a file, under a name of ours where none is given.
    pub save: bool,
    /// `-foptimization-record-passes=`.
    pub passes: Option<String>,
    /// The format, where it is not YAML.
    pub other_format: Option<String>,
}

impl Request {
    /// From the device arguments of clang and its linker, in order.
    pub fn new(options: &Options) -> Request {
        let mut request = Request::default();
        let remarks = options.remarks.iter().map(|option| option.to_string_lossy());
        for option in remarks.chain(options.mllvm.iter().map(|option| option.as_str().into())) {
            let option = option.trim_start_matches('-');
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = value.to_owned();
            match name {
                // `-Rpass` alone is every pass, `-Rno-pass` none, as for clang.
                "Rpass" | "pass-remarks" => request.shown.passed = Some(value),
                "Rpass-missed" | "pass-remarks-missed" => request.shown.missed = Some(value),
                "Rpass-analysis" | "pass-remarks-analysis" => request.shown.analysis = Some(value),
                "Rno-pass" => request.shown.passed = None,
                "Rno-pass-missed" => request.shown.missed = None,
                "Rno-pass-analysis" => request.shown.analysis = None,
                "fsave-optimization-record" => {
                    request.save = true;
                    request.other_format = Some(value).filter(|format| !format.is_empty() && format != "yaml");
                }
                "fno-save-optimization-record" => request.save = false,
                "foptimization-record-file" => {
                    request.save = true;
                    request.file = Some(value.into());
                }
                "opt-remarks-filename" => {
                    request.save = true;
                    request.file = Some(value.into());
                }
                "opt-remarks-format" => request.other_format = Some(value).filter(|format| !format.is_empty() && format != "yaml"),
                "foptimization-record-passes" | "opt-remarks-passes" | "opt-remarks-filter" => {
                    request.save = true;
                    request.passes = Some(value);
                }
                _ => {}
            }
        }
        request
    }

    /// Where the file goes.
    pub fn path(&self, options: &Options) -> Option<PathBuf> {
        let of_output = || {
            let mut name = options.output.clone().into_os_string();
            name.push("-cuda-nvptx64-nvidia-cuda.opt.ld.yaml");
            PathBuf::from(name)
        };
        self.save.then(|| self.file.clone().unwrap_or_else(of_output))
    }
}

/// Asks a session for the remarks that somebody wants. True where some are to be printed; LLVM reports a few in any case.
///
/// # Errors
/// A pattern is no regular expression, or the format is one that cannot be merged.
pub fn ask(session: &mut Session, options: &Options, recorder: &Recorder) -> Result<bool> {
    let request = Request::new(options);
    let recorded = request.save || recorder.has_remarks();
    let shown = request.shown != RemarkPatterns::default();
    if recorded || shown {
        // What is written down would otherwise be reported as well, all of it.
        session.report_remarks(&request.shown).map_err(|error| format!("-Rpass: {error}")).context(|| "optimisation remarks")?;
    }
    if !recorded {
        return Ok(shown);
    }
    if let Some(format) = request.other_format.filter(|_| request.save) {
        bail!("optimisation remarks: format {format}: those of a device link are written as yaml only");
    }
    let passes = request.passes.as_deref().or((!request.save).then_some(REPORTED));
    session.record_remarks(passes).map_err(|error| error.to_string()).context(|| "optimisation remarks")?;
    Ok(shown)
}

/// Writes the remarks of all architectures into one file, if there is to be one.
///
/// # Errors
/// It cannot be written.
pub fn write(options: &Options, recorder: &Recorder) -> Result<()> {
    let Some(path) = Request::new(options).path(options).filter(|_| !options.dry_run) else { return Ok(()) };
    let text = merged(&recorder.remark_texts());
    std::fs::write(&path, text).context(|| format!("{}: cannot write the optimisation remarks", path.display()))
}

/// A remark as it is printed: without the place that it does not have, names demangled.
pub fn shown(text: &str, diagnostics: &Diagnostics) -> String {
    diagnostics.names(text.strip_prefix("<unknown>:0:0: ").unwrap_or(text))
}

/// The documents of a YAML file of remarks: each begins with `--- !Kind`.
fn documents(yaml: &str) -> impl Iterator<Item = &str> {
    yaml.split_inclusive("\n...\n").filter(|document| document.starts_with("--- !"))
}

/// Remarks in the order in which they first come, with the architectures that have them.
fn by_text(texts: &[(Vec<String>, String)]) -> Vec<(&str, Vec<&str>)> {
    let mut list: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for (archs, yaml) in texts {
        for document in documents(yaml) {
            let at = *known.entry(document).or_insert_with(|| {
                list.push((document, Vec::new()));
                list.len() - 1
            });
            if let Some((_, of)) = list.get_mut(at) {
                of.extend(archs.iter().map(String::as_str).filter(|arch| !of.contains(arch)).collect::<Vec<_>>());
            }
        }
    }
    list
}

/// One file of the remarks of several architectures.
fn merged(texts: &[(Vec<String>, String)]) -> String {
    let mut text = String::new();
    for (document, archs) in by_text(texts) {
        let body = document.trim_end_matches("...\n");
        text.push_str(body);
        if !body.contains("\nArgs:") {
            text.push_str("Args:\n");
        }
        text.push_str(&format!("  - String:          ' for '\n  - Arch:            '{}'\n...\n", archs.join(", ")));
    }
    text
}

/// The same as a list.
pub(super) fn parse_all(texts: &[(Vec<String>, String)]) -> Vec<Remark> {
    by_text(texts).into_iter().map(|(document, archs)| parse(document, &archs)).collect()
}

/// Reads one document as LLVM's serializer writes it: a key a line, arguments as a list of one pair each, values plain, in single or double
/// quotes.
fn parse(document: &str, archs: &[&str]) -> Remark {
    // A place may go on in the next line.
    let mut folded: Vec<String> = Vec::new();
    for line in document.lines() {
        match folded.last_mut() {
            Some(last) if last.contains("DebugLoc:") && !last.trim_end().ends_with('}') => {
                last.truncate(last.trim_end().len());
                last.push(' ');
                last.push_str(line.trim());
            }
            _ => folded.push(line.to_owned()),
        }
    }
    let mut lines = folded.iter().map(String::as_str);
    let kind = lines.next().and_then(|line| line.strip_prefix("--- !")).unwrap_or_default().to_owned();
    let mut remark = Remark {
        kind,
        pass: String::new(),
        name: String::new(),
        function: String::new(),
        place: String::new(),
        text: String::new(),
        archs: archs.iter().map(|arch| (*arch).to_owned()).collect(),
    };
    let mut argument: Option<(bool, String)> = None;
    for line in lines {
        if let Some(pair) = line.strip_prefix("  - ") {
            finish(&mut remark, argument.take());
            let (key, value) = pair.split_once(':').unwrap_or((pair, ""));
            argument = Some((key != "String", scalar(value)));
        } else if line.starts_with("    ") {
            // A long value goes on in the next line; places of arguments are of no interest here.
            let rest = line.trim();
            if let Some((_, text)) = argument.as_mut().filter(|_| !rest.starts_with("DebugLoc:")) {
                text.push_str(&scalar(rest));
            }
        } else if let Some((key, value)) = line.split_once(':') {
            match key {
                "Pass" => remark.pass = scalar(value),
                "Name" => remark.name = scalar(value),
                "Function" => remark.function = crate::names::before_cut(&scalar(value)).into_owned(),
                "DebugLoc" => remark.place = place(value).unwrap_or_default(),
                _ => {}
            }
        }
    }
    finish(&mut remark, argument);
    remark
}

fn finish(remark: &mut Remark, argument: Option<(bool, String)>) {
    let Some((is_value, text)) = argument else { return };
    remark.text.push_str(&if is_value { names::demangle(&text) } else { text });
}

/// `{ File: 'a.cu', Line: 3, Column: 7 }` as `a.cu:3:7`.
fn place(value: &str) -> Option<String> {
    let inside = value.trim().strip_prefix('{')?.trim_end().strip_suffix('}')?;
    let (file, rest) = inside.trim().strip_prefix("File:")?.rsplit_once(", Line:")?;
    let (line, column) = rest.split_once(", Column:")?;
    Some(format!("{}:{}:{}", scalar(file), line.trim(), column.trim()))
}

/// A YAML scalar without its quotes.
fn scalar(text: &str) -> String {
    let text = text.trim();
    if let Some(inside) = text.strip_prefix('\'') {
        return inside.strip_suffix('\'').unwrap_or(inside).replace("''", "'");
    }
    match text.strip_prefix('"') {
        Some(inside) => inside.strip_suffix('"').unwrap_or(inside).replace("\\n", "\n").replace("\\\"", "\"").replace("\\\\", "\\"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INLINED: &str = "--- !Passed\nPass:            inline\nName:            Inlined\nDebugLoc:        { File: 'a,b.cu', Line: 3, Column: 7 \
                           }\nFunction:        _Z1kPi\nArgs:\n  - String:          ''''\n  - Callee:          _Z1fi\n    DebugLoc:        { File: \
                           a.cu, \n                       Line: 1, Column: 0 }\n  - String:          ''' inlined into '''\n  - Caller:          _Z1kPi\n  - String:          \
                           ''''\n...\n";
    const BARE: &str = "--- !Missed\nPass:            gvn\nName:            LoadClobbered\nFunction:        f\n...\n";

    #[test]
    fn what_all_have_is_said_once() {
        let texts = [(vec!["sm_80".to_owned()], format!("{INLINED}{BARE}")), (vec!["sm_90".to_owned()], INLINED.to_owned())];
        let text = merged(&texts);
        assert_eq!(text.matches("--- !").count(), 2);
        assert!(text.contains("  - Caller:          _Z1kPi\n  - String:          ''''\n  - String:          ' for '\n  - Arch:            'sm_80, sm_90'\n...\n"));
        assert!(text.ends_with("Function:        f\nArgs:\n  - String:          ' for '\n  - Arch:            'sm_80'\n...\n"), "{text}");
        let list = parse_all(&texts);
        assert_eq!(list[0].text, "'f(int)' inlined into 'k(int*)'");
        assert_eq!((list[0].place.as_str(), list[0].pass.as_str(), list[0].kind.as_str()), ("a,b.cu:3:7", "inline", "Passed"));
        assert_eq!(list[0].archs, ["sm_80", "sm_90"]);
        assert_eq!((list[1].name.as_str(), list[1].text.as_str()), ("LoadClobbered", ""));
    }

    #[test]
    fn damaged_text_is_no_remark() {
        for text in ["", "--- ", "...\n", "--- !", "--- !Passed", "--- !Passed\nDebugLoc: {", "--- !Passed\nArgs:\n  - \n    :\n"] {
            let texts = [(vec!["sm_90".to_owned()], text.to_owned())];
            assert!(parse_all(&texts).len() <= 1 && merged(&texts).matches("--- !").count() <= 1, "{text:?}");
        }
    }

    #[test]
    fn requests() {
        let line = |words: &[&str]| {
            let args = std::iter::once("clang-linker-wrapper").chain(words.iter().copied()).map(Into::into).collect();
            Request::new(&crate::link_line::parse(args, &|_| None).unwrap().options)
        };
        let request =
            line(&["--device-compiler=-Rpass=inline", "--device-compiler=-Rpass-missed=x", "--device-compiler=-Rpass-missed=gvn"]);
        assert_eq!(request.shown, RemarkPatterns { passed: Some("inline".into()), missed: Some("gvn".into()), analysis: None });
        assert!(!request.save);
        let request =
            line(&["--device-linker=--plugin-opt=-pass-remarks-analysis=a", "--device-linker=--plugin-opt=opt-remarks-filename=f.yaml"]);
        assert_eq!((request.shown.analysis.as_deref(), request.file), (Some("a"), Some("f.yaml".into())));
        let request = line(&["--device-compiler=-fsave-optimization-record=bitstream", "--device-compiler=-foptimization-record-passes=i"]);
        assert_eq!((request.save, request.passes.as_deref(), request.other_format.as_deref()), (true, Some("i"), Some("bitstream")));
        let request = line(&["--warplink-remarks=r.yaml", "-o", "app"]);
        assert_eq!((request.save, request.file), (true, Some("r.yaml".into())));
    }

    #[test]
    fn the_file_is_named_after_the_output() {
        let args = ["clang-linker-wrapper", "--device-compiler=-fsave-optimization-record", "-o", "b/app"].map(Into::into).into();
        let options = crate::link_line::parse(args, &|_| None).unwrap().options;
        assert_eq!(Request::new(&options).path(&options), Some("b/app-cuda-nvptx64-nvidia-cuda.opt.ld.yaml".into()));
    }
}
