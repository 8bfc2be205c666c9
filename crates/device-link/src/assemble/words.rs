//! ptxas's words in the user's terms. It names a line of a file that is ours and will be gone: what the user can make something of is the
//! line itself and the function that it stands in.

use std::path::Path;

/// What ptxas said, and the mangled name of the function that it first complained about.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) text: String,
    pub(super) function: Option<String>,
}

/// Rewrites `output`, in which `path` is the file that held `ptx`, the code for `arch`. A file that is `kept` keeps its name.
pub(super) fn in_users_terms(output: &str, path: &Path, ptx: &[u8], arch: &str, kept: bool) -> Words {
    let ptx = String::from_utf8_lossy(ptx);
    let start = format!("ptxas {}, line ", path.display());
    let mut text = String::new();
    let mut function = None;
    for line in output.lines() {
        let place = line.strip_prefix(&start).and_then(|rest| {
            let (number, message) = rest.split_once("; ")?;
            Some((number.parse::<usize>().ok()?, message))
        });
        let Some((number, message)) = place else {
            // Without a line it is about the file.
            let name = if kept { path.display().to_string() } else { format!("the ptx for {arch}") };
            text.push_str(&line.replace(&path.display().to_string(), &name));
            text.push('\n');
            continue;
        };
        let enclosing = enclosing_function(&ptx, number);
        // `error   : Duplicate ...`
        let message =
            message.split_once(':').map_or(message.to_owned(), |(grade, rest)| format!("{}: {}", grade.trim_end(), rest.trim_start()));
        let file = if kept { path.display().to_string() } else { format!("the ptx for {arch}") };
        let inside = enclosing.map(|name| format!(", in {name}")).unwrap_or_default();
        text.push_str(&format!("ptxas, line {number} of {file}{inside}: {message}\n"));
        if let Some(code) = number.checked_sub(1).and_then(|index| ptx.lines().nth(index)).filter(|code| !code.trim().is_empty()) {
            text.push_str(&format!("    {}\n", code.trim()));
        }
        function = function.or(enclosing.map(str::to_owned));
    }
    Words { text, function }
}

/// The function or kernel that a line of PTX, counted from 1, stands in.
fn enclosing_function(ptx: &str, number: usize) -> Option<&str> {
    let lines: Vec<&str> = ptx.lines().take(number).collect();
    let head = lines.iter().rev().find(|line| {
        let mut words = line.split_whitespace();
        words.any(|word| word == ".entry" || word == ".func")
    })?;
    let rest = head.split_once(".entry").or_else(|| head.split_once(".func"))?.1.trim_start();
    // The result of a function stands in brackets before its name.
    let rest = if rest.starts_with('(') { rest.split_once(')')?.1.trim_start() } else { rest };
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
    rest.get(..end).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &[u8] = b".version 8.8\n.visible .func  (.param .b32 r) _Z1fi(\n  .param .b32 a\n)\n{\n  LAB: bra LAB;\n}\n.visible .entry k()\n{\n  reet;\n}\n";

    #[test]
    fn lines_are_shown_and_put_into_their_function() {
        let output = "ptxas /t/w/sm_90.ptx, line 6; error   : Duplicate definition of label 'LAB'\n\
                      ptxas /t/w/sm_90.ptx, line 10; error   : Not a name of any known instruction: 'reet'\n\
                      ptxas fatal   : Ptx assembly aborted due to errors\n";
        let words = in_users_terms(output, Path::new("/t/w/sm_90.ptx"), PTX, "sm_90", false);
        assert_eq!(
            words.text,
            "ptxas, line 6 of the ptx for sm_90, in _Z1fi: error: Duplicate definition of label 'LAB'\n    LAB: bra LAB;\n\
             ptxas, line 10 of the ptx for sm_90, in k: error: Not a name of any known instruction: 'reet'\n    reet;\n\
             ptxas fatal   : Ptx assembly aborted due to errors\n"
        );
        assert_eq!(words.function.as_deref(), Some("_Z1fi"));
    }

    #[test]
    fn odd_places_are_survived() {
        for output in ["", "ptxas x, line 0; error: y", "ptxas x, line 99999; error", "ptxas x, line a; b", "fatal: x is empty"] {
            let words = in_users_terms(output, Path::new("x"), b".func (", "sm_90", true);
            assert_eq!(words.function, None, "{output}");
        }
        assert_eq!(in_users_terms("fatal: x is empty", Path::new("x"), b"", "sm_90", false).text, "fatal: the ptx for sm_90 is empty\n");
    }
}
