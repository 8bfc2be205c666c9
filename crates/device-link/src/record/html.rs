//! `--warplink-report=`: the record as JSON, or as one HTML page that holds it and shows it. The page is `report.html`; nothing in it comes
//! from elsewhere.

use std::path::Path;

use super::Record;
use crate::error::{Context, Error, Result};

/// The page; the record takes the place of [`PLACE`].
const PAGE: &str = include_str!("report.html");
const PLACE: &str = "@RECORD@";

/// Writes the report in the format that the file's name asks for.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, record: &Record) -> Result<()> {
    let failed = || format!("{}: cannot write the report", path.display());
    let json = serde_json::to_string(record).map_err(|error| Error::new(error.to_string())).context(failed)?;
    let text = if path.extension().is_some_and(|extension| extension == "html") { page(&json) } else { json + "\n" };
    std::fs::write(path, text).context(failed)
}

/// The page with a record in it. In a script element only `<` could end it; JSON has another spelling for it.
fn page(json: &str) -> String {
    PAGE.replacen(PLACE, &json.replace('<', "\\u003c"), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_record_ends_the_script() {
        let record = Record { output: "</script><script>alert(1)</script>".to_owned(), ..Record::default() };
        let page = page(&serde_json::to_string(&record).unwrap());
        assert!(!page.contains("alert(1)</script>") && page.contains("\\u003c/script>"));
        let start = page.find("<script id=\"record\" type=\"application/json\">").unwrap();
        let json = page[start..].split_once('>').unwrap().1.split("</script>").next().unwrap();
        assert_eq!(serde_json::from_str::<Record>(json).unwrap(), record);
    }

    #[test]
    fn the_page_needs_nothing_else() {
        assert_eq!(PAGE.matches(PLACE).count(), 1);
        for elsewhere in ["http://", "https://", "src=", "@import", "url(", "fetch("] {
            let uses: Vec<&str> = PAGE.lines().filter(|line| line.contains(elsewhere) && !line.contains("www.w3.org/2000/svg")).collect();
            assert!(uses.is_empty(), "{elsewhere}: {uses:?}");
        }
    }
}
