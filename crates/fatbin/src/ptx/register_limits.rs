//! Limits on the registers of kernels, written into PTX text.

use super::{Token, Tokens};

/// The text in which every kernel that `limit` knows by name has a directive `.maxnreg`, in place of the one that it may have had. None if it
/// knows none.
pub fn with_register_limits(text: &[u8], limit: impl Fn(&str) -> Option<u32>) -> Option<Vec<u8>> {
    let mut changed = Vec::with_capacity(text.len() + 256);
    let mut done = 0;
    let mut depth = 0usize;
    let mut found = false;
    // The limit of the kernel whose head is being read, and where a directive of its own stands.
    let mut kernel: Option<u32> = None;
    let mut old: Option<(usize, usize)> = None;
    let mut before = Token::Punct(b';');
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next() {
        let end = text.len() - tokens.rest.len();
        match token {
            Token::Punct(b'{') => {
                if let Some(registers) = kernel.take().filter(|_| depth == 0) {
                    let head_end = end - 1;
                    let (from, to) = old.take().unwrap_or((head_end, head_end));
                    changed.extend_from_slice(text.get(done..from)?);
                    changed.extend_from_slice(text.get(to..head_end)?);
                    changed.extend_from_slice(format!("\n.maxnreg {registers}\n").as_bytes());
                    done = head_end;
                    found = true;
                }
                depth += 1;
            }
            Token::Punct(b'}') => depth = depth.saturating_sub(1),
            Token::Punct(b';') if depth == 0 => (kernel, old) = (None, None),
            Token::Word(name) if depth == 0 => {
                let start = end - name.len();
                if before == Token::Word(b".entry") {
                    kernel = std::str::from_utf8(name).ok().and_then(&limit);
                    old = None;
                } else if name == b".maxnreg" {
                    old = Some((start, end));
                } else if before == Token::Word(b".maxnreg")
                    && let Some((_, to)) = &mut old
                {
                    *to = end;
                }
            }
            _ => {}
        }
        before = token;
    }
    changed.extend_from_slice(text.get(done..)?);
    found.then_some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry a(\n.param .u64 a_0\n)\n.maxntid 256\n{\n ret; {x} \n}\n\
        .entry b()\n.maxnreg 99 // was\n.minnctapersm 2 {}\n.func f() {}\n.extern .entry c();\n.visible .entry d { ret; }\n";

    fn with(limits: &[(&str, u32)]) -> Option<String> {
        let limit = |name: &str| limits.iter().find(|(known, _)| *known == name).map(|(_, limit)| *limit);
        with_register_limits(TEXT.as_bytes(), limit).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn kernels_get_a_limit_or_another_one() {
        let expected = TEXT
            .replace(".maxntid 256\n{", ".maxntid 256\n\n.maxnreg 40\n{")
            .replace(".maxnreg 99 // was\n.minnctapersm 2 {}", " // was\n.minnctapersm 2 \n.maxnreg 32\n{}")
            .replace(".entry d {", ".entry d \n.maxnreg 24\n{");
        assert_eq!(with(&[("a", 40), ("b", 32), ("d", 24), ("f", 1), ("c", 1)]).unwrap(), expected);
        assert_eq!(with(&[("a", 40)]).unwrap().matches(".maxnreg").count(), 2);
        assert_eq!(with(&[("f", 40), ("c", 2), ("x", 3)]), None);
        for end in 0..TEXT.len() {
            with_register_limits(&TEXT.as_bytes()[..end], |_| Some(32));
        }
    }
}
