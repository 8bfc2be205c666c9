//! Turns declarations of plain functions into declarations of kernels, in PTX text.

use super::{Token, Tokens};

/// The text in which kernels of other modules are declared as such. `is_kernel` knows the program's kernels by name; None if nothing
/// has to change.
///
/// LLVM writes `.extern .func` for a kernel of which only the address is taken, as a launch from device code does, and then it is another
/// address than that of the kernel: see [`crate::cubin::Cubin::with_kernels_marked`].
pub fn with_kernels_declared(text: &[u8], is_kernel: impl Fn(&str) -> bool) -> Option<Vec<u8>> {
    const FUNCTION: &[u8] = b".func";
    const KERNEL: &[u8] = b".entry";
    let mut places = Vec::new();
    let mut depth = 0usize;
    let mut before = [Token::Punct(b';'); 2];
    // Where the word before the current token begins.
    let mut word_at = 0;
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next() {
        let end = text.len() - tokens.rest.len();
        match token {
            Token::Punct(b'{') => depth += 1,
            Token::Punct(b'}') => depth = depth.saturating_sub(1),
            Token::Word(name) if depth == 0 => {
                // What has a result is no kernel; there a parenthesis would stand before the name.
                let declared = before == [Token::Word(b".extern"), Token::Word(FUNCTION)];
                if declared && std::str::from_utf8(name).is_ok_and(&is_kernel) {
                    places.push(word_at);
                }
                word_at = end - name.len();
            }
            _ => {}
        }
        before = [before[1], token];
    }
    let mut rest = 0;
    let mut changed = Vec::with_capacity(text.len() + places.len());
    for place in &places {
        changed.extend_from_slice(text.get(rest..*place)?);
        changed.extend_from_slice(KERNEL);
        rest = place + FUNCTION.len();
    }
    changed.extend_from_slice(text.get(rest..)?);
    (!places.is_empty()).then_some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_of_kernels_are_corrected() {
        let text =
            b".version 7.8\n// .extern .func k\n.extern .func k\n(\n.param .b64 k_param_0\n)\n;\n.extern .func (.param .b32 r) g ( );\n\
            .extern  .func\th();\n.visible .entry p()\n{\n.extern .func k\n}\n";
        let changed = with_kernels_declared(text, |name| matches!(name, "k" | "g" | "h")).unwrap();
        let expected =
            String::from_utf8_lossy(text).replace("\n.extern .func k\n(", "\n.extern .entry k\n(").replace(".func\th", ".entry\th");
        assert_eq!(String::from_utf8_lossy(&changed), expected);
        assert_eq!(with_kernels_declared(text, |name| name == "g"), None);
        assert_eq!(with_kernels_declared(&changed, |_| true).map(|_| ()), None);
        for end in 0..text.len() {
            with_kernels_declared(&text[..end], |_| true);
        }
    }
}
