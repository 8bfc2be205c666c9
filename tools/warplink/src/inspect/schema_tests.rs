//! The JSON output against docs/inspect.md: both name the same fields.

use super::diff::{Change, Diff, Fate, ImageChange, KernelChange, ResourceChange, Side};
use super::report::*;
use serde_json::Value;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../../docs/inspect.md");

/// The fields of the page's table number `index`.
fn documented(index: usize) -> BTreeSet<String> {
    let table = PAGE.split("| field | |\n").nth(index + 1).expect("a table of fields");
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let fields: BTreeSet<String> = rows.filter_map(|row| Some(row.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect();
    assert!(fields.len() > 20, "{fields:?}");
    fields
}

/// The path of every value that is no object and no list; of an empty list, that of the list.
pub(crate) fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            let dot = if path.is_empty() { "" } else { "." };
            fields.iter().for_each(|(name, value)| self::fields(value, &format!("{path}{dot}{name}"), found));
        }
        Value::Array(values) if !values.is_empty() => values.iter().for_each(|value| fields(value, &format!("{path}[]"), found)),
        _ => {
            found.insert(path.to_owned());
        }
    }
}

fn check(value: &Value, index: usize) {
    let mut found = BTreeSet::new();
    fields(value, "", &mut found);
    let documented = documented(index);
    assert_eq!(found.difference(&documented).collect::<Vec<_>>(), Vec::<&String>::new(), "not in docs/inspect.md");
    assert_eq!(documented.difference(&found).collect::<Vec<_>>(), Vec::<&String>::new(), "in docs/inspect.md only");
}

/// A report in which nothing is left out. Written without defaults, so that a new field has to be put here, and then into the page.
fn full_report() -> Report {
    let text = || "text".to_owned();
    let resources = Resources {
        registers: Some(32),
        max_registers: Some(255),
        spill_stores: Some(8),
        spill_loads: Some(8),
        stack: 16,
        shared: 1024,
        constants: vec![(0, 352)],
        parameters: Some(16),
        code: 512,
        barriers: 1,
        max_threads: Some([256, 1, 1]),
        required_threads: Some([256, 1, 1]),
        cluster: Some([2, 1, 1]),
    };
    let image = Image {
        kind: ImageKind::Cubin,
        arch: text(),
        compression: "zstd",
        stored_size: 1,
        size: 2,
        debug: true,
        relocatable: false,
        ident: Some(text()),
        options: Some(text()),
        ptx: Some(Ptx { version: text(), cuda: Some("12.9"), driver: Some(575) }),
        offload: Some(Offload { version: 2, triple: text(), producers: vec!["cuda"], metadata: vec![(text(), text())] }),
        kernels: vec![Kernel { name: text(), demangled: Some(text()), resources: Some(resources) }],
        variables: vec![Variable { name: text(), demangled: Some(text()), memory: "global", size: Some(4) }],
        sections: vec![Part { name: text(), size: 3 }],
        problem: Some(text()),
        target: None,
        mercury: false,
        defined: None,
    };
    let container = Container { kind: ContainerKind::Fatbin, member: Some(text()), section: Some(text()), offset: 0, images: vec![image] };
    let entry = Entry {
        member: Some(text()),
        name: text(),
        demangled: Some(text()),
        kind: "kernel",
        size: 0,
        images: vec![EntryImage { container: 0, image: 0, found: true }],
    };
    let gpu = GpuVerdict {
        arch: text(),
        names: &["H200"],
        runs: Runs::Jit,
        choices: vec![ChoiceReport { container: 0, image: Some(0) }],
        driver: Some(575),
    };
    let file = File {
        path: text(),
        format: text(),
        size: 1,
        parts: vec![Part { name: text(), size: 1 }],
        containers: vec![container],
        entries: vec![entry],
        problems: vec![text()],
        gpus: vec![gpu],
    };
    Report { schema: 1, files: vec![file] }
}

#[test]
fn the_report_has_the_documented_fields() {
    check(&serde_json::to_value(full_report()).expect("json"), 0);
}

#[test]
fn the_diff_has_the_documented_fields() {
    let change = || Change { name: String::new(), fate: Fate::Grew, old: 1, new: 2, growth: 1, percent: Some(100.0) };
    let image = |demangled| ImageChange { arch: "sm_90".to_owned(), kind: ImageKind::Cubin, demangled, change: change() };
    let kernel = KernelChange {
        image: image(Some(String::new())),
        resources: vec![ResourceChange { name: "registers", old: Some(1), new: Some(2) }],
    };
    let side = || Side { path: String::new(), format: String::new() };
    let diff = Diff {
        schema: 1,
        old: side(),
        new: side(),
        totals: vec![change()],
        parts: vec![change()],
        images: vec![image(None)],
        sections: vec![image(None)],
        kernels: vec![kernel],
        variables: vec![image(Some(String::new()))],
    };
    check(&serde_json::to_value(diff).expect("json"), 1);
}
