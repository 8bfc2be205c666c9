//! What the last device link of each output was made of, field by field, so that the next one can say why it was no hit.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::link::{ARRANGEMENT, ROOTS};
use super::{Cache, Fields, Key, Kind};

/// How the cache answered to a device link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was there.
    Hit,
    /// It was not there, or is not to be used for the reason given.
    Miss(Option<&'static str>),
    /// The cache was not asked, for the reason given.
    Uncached(&'static str),
}

/// The last device link of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The output's absolute path.
    pub output: String,
    /// When it was last linked anew, in seconds since 1970.
    pub time: u64,
    /// How that was: `miss` or `uncached`; `hit` where it has never been linked anew.
    pub outcome: String,
    /// Why it was.
    pub reasons: Vec<String>,
    key: String,
    fields: Vec<Noted>,
}

/// A field as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Noted {
    label: String,
    tag: String,
    hash: String,
    /// Its value, where people can read it.
    text: String,
}

/// Compares a link with the last one of the same output, and takes its place. What is said of the last link that was no hit stays through
/// hits; one that changes nothing writes nothing.
pub(super) fn note(cache: &Cache, output: &Path, fields: Option<&Fields>, outcome: Outcome) {
    let Ok(output) = std::path::absolute(output) else { return };
    let key = key_of(&output);
    let last = cache.get(Kind::Record, &key).and_then(|entry| Record::read(entry.section(0)));
    let made = fields.map(|fields| fields.key().to_string()).unwrap_or_default();
    if outcome == Outcome::Hit && last.as_ref().is_some_and(|last| last.key == made) {
        return;
    }
    let fields: Vec<Noted> = fields.map(noted).unwrap_or_default();
    let (outcome, reasons) = match outcome {
        Outcome::Hit => match last {
            Some(last) => return keep(cache, &key, &Record { key: made, fields, ..last }),
            None => ("hit", Vec::new()),
        },
        Outcome::Uncached(why) => ("uncached", vec![why.to_owned()]),
        Outcome::Miss(Some(why)) => ("miss", vec![why.to_owned()]),
        Outcome::Miss(None) => (
            "miss",
            match &last {
                Some(last) => reasons(Some(&last.fields), &fields),
                None => first_reasons(namesake(cache, &output).as_ref(), &fields),
            },
        ),
    };
    // A link that was not looked up says nothing about its inputs; what is known of the one before stays.
    let (key_text, fields) = match last {
        Some(last) if fields.is_empty() => (last.key, last.fields),
        _ => (made, fields),
    };
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let shown = output.to_string_lossy().into_owned();
    if let (Some(name), Some(path)) = (name_key(&output), output.to_str()) {
        cache.put(Kind::Record, &name, &[path.as_bytes()], &[]);
    }
    keep(cache, &key, &Record { output: shown, time, outcome: outcome.to_owned(), reasons, key: key_text, fields });
}

fn keep(cache: &Cache, key: &Key, record: &Record) {
    cache.put(Kind::Record, key, &[record.written().as_bytes()], &[]);
}

/// The place of an output's record. This key alone is made of a path: it names no code.
pub(super) fn key_of(output: &Path) -> Key {
    let mut fields = Fields::new(Kind::Record);
    fields.bytes("output", output.as_os_str().as_encoded_bytes());
    fields.key()
}

/// The place of the path of the last output of a name: a fresh checkout in another directory is compared with that.
fn name_key(output: &Path) -> Option<Key> {
    let mut fields = Fields::new(Kind::Record);
    fields.bytes("name", output.file_name()?.as_encoded_bytes());
    Some(fields.key())
}

/// The record of the last output of the same name in any directory.
fn namesake(cache: &Cache, output: &Path) -> Option<Record> {
    let entry = cache.get(Kind::Record, &name_key(output)?)?;
    let path = std::str::from_utf8(entry.section(0)).ok()?;
    Record::read(cache.get(Kind::Record, &key_of(Path::new(path)))?.section(0))
}

/// What makes the first link of an output another one than that of its namesake, if they have an input in common: many programs are called
/// `test`.
fn first_reasons(namesake: Option<&Record>, new: &[Noted]) -> Vec<String> {
    let is_in = |old: &[Noted]| {
        new.iter().any(|field| field.tag == "input" && old.iter().any(|was| was.tag == "input" && was.label == field.label))
    };
    let Some(namesake) = namesake.filter(|record| is_in(&record.fields)) else { return reasons(None, new) };
    let mut all = vec![format!("this output was not linked with this cache before; compared with {}:", namesake.output)];
    all.extend(reasons(Some(&namesake.fields), new));
    all
}

fn noted(fields: &Fields) -> Vec<Noted> {
    let list = fields.list().iter();
    list.map(|field| Noted {
        label: field.label.clone(),
        tag: field.tag.to_owned(),
        hash: field.hash.to_string(),
        text: field.text.clone().unwrap_or_default(),
    })
    .collect()
}

/// What makes `new` another link than `old`, in words. Inputs go by their names, several of one name by their order.
fn reasons(old: Option<&[Noted]>, new: &[Noted]) -> Vec<String> {
    let Some(old) = old.filter(|old| !old.is_empty()) else { return vec!["this output was not linked with this cache before".to_owned()] };
    let is_input = |field: &&Noted| field.tag == "input";
    let numbered = |fields: &[Noted]| -> BTreeMap<(String, usize), Noted> {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let mut all = BTreeMap::new();
        for field in fields {
            let count = seen.entry(&field.label).or_insert(0);
            all.insert((field.label.clone(), *count), field.clone());
            *count += 1;
        }
        all
    };
    let (before, after) = (numbered(old), numbered(new));
    let mut inputs = Vec::new();
    let mut others = Vec::new();
    for (name, field) in &after {
        let label = &field.label;
        match before.get(name) {
            Some(was) if was.hash == field.hash => {}
            Some(_) if is_input(&field) => inputs.push(format!("{label}: its device code changed")),
            None if is_input(&field) => inputs.push(format!("{label}: was added")),
            Some(was) if !was.text.is_empty() || !field.text.is_empty() => {
                others.push(format!("{label}: was {}, is {}", readable(&was.text), readable(&field.text)));
            }
            _ if label == ROOTS => others.push(format!("{label} changed")),
            // It says nothing that the list of inputs does not, unless that is the same.
            _ if label == ARRANGEMENT => {}
            _ => others.push(format!("{label}: is another one")),
        }
    }
    let gone = before.iter().filter(|(name, field)| is_input(field) && !after.contains_key(name));
    inputs.extend(gone.map(|(_, field)| format!("{}: was removed", field.label)));
    others.extend(inputs);
    if !others.is_empty() {
        return others;
    }
    let order =
        |fields: &[Noted]| fields.iter().filter(is_input).map(|field| (field.label.clone(), field.hash.clone())).collect::<Vec<_>>();
    let arrangement = |fields: &[Noted]| fields.iter().find(|field| field.label == ARRANGEMENT).map(|field| field.hash.clone());
    vec![if order(old) != order(new) {
        "the inputs come in another order".to_owned()
    } else if arrangement(old) != arrangement(new) {
        "the inputs lie in other objects".to_owned()
    } else {
        "nothing changed: the entry was never kept, or has been removed since".to_owned()
    }]
}

/// An option's value without the dress of the language.
fn readable(text: &str) -> String {
    match text {
        "" => "unknown".to_owned(),
        "None" | "[]" => "not given".to_owned(),
        _ => text.strip_prefix("Some(").and_then(|text| text.strip_suffix(')')).unwrap_or(text).to_owned(),
    }
}

impl Record {
    fn written(&self) -> String {
        let fields: Vec<_> = self.fields.iter().map(|f| json!([f.label, f.tag, f.hash, f.text])).collect();
        json!({
            "output": self.output, "time": self.time, "outcome": self.outcome, "reasons": self.reasons, "key": self.key, "fields": fields,
        })
        .to_string()
    }

    /// From an entry; None if it is of another form.
    pub(super) fn read(bytes: &[u8]) -> Option<Record> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let field = |value: &Value| {
            Some(Noted { label: text(value.get(0)?)?, tag: text(value.get(1)?)?, hash: text(value.get(2)?)?, text: text(value.get(3)?)? })
        };
        Some(Record {
            output: text(value.get("output")?)?,
            time: value.get("time")?.as_u64()?,
            outcome: text(value.get("outcome")?)?,
            reasons: value.get("reasons")?.as_array()?.iter().map(text).collect::<Option<_>>()?,
            key: text(value.get("key")?)?,
            fields: value.get("fields")?.as_array()?.iter().map(field).collect::<Option<_>>()?,
        })
    }

    /// For other programs: without the fields.
    pub fn to_json(&self) -> Value {
        json!({ "output": self.output, "time": self.time, "outcome": self.outcome, "reasons": self.reasons })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Hash;
    use crate::cache::tests::{line, open};
    use crate::diagnostics::Diagnostics;

    fn link(options: &[(&'static str, &str)], inputs: &[(&str, &str)], rest: &[(&'static str, &str)]) -> Fields {
        let mut fields = Fields::new(Kind::Link);
        for (name, value) in options {
            fields.shown(name, value);
        }
        for (name, contents) in inputs {
            fields.hash("input", *name, Hash::of(contents.as_bytes()));
        }
        for (name, value) in rest {
            fields.bytes(name, value.as_bytes());
        }
        fields
    }

    #[test]
    fn the_difference_is_said_in_words() {
        let old =
            link(&[("-O", "Some(O2)"), ("-g", "None")], &[("a.o", "1"), ("b.o", "2"), ("b.o", "3")], &[(ROOTS, "k"), ("ptxas", "13.0")]);
        let cases: &[(Fields, &[&str])] = &[
            (old.clone(), &["nothing changed: the entry was never kept, or has been removed since"]),
            (
                link(&[("-O", "None"), ("-g", "None")], &[("a.o", "1"), ("b.o", "2"), ("b.o", "3")], &[(ROOTS, "k"), ("ptxas", "13.0")]),
                &["-O: was O2, is not given"],
            ),
            (
                link(
                    &[("-O", "Some(O2)"), ("-g", "None")],
                    &[("a.o", "9"), ("b.o", "2"), ("b.o", "9")],
                    &[(ROOTS, "k"), ("ptxas", "13.0")],
                ),
                &["a.o: its device code changed", "b.o: its device code changed"],
            ),
            (
                link(&[("-O", "Some(O2)"), ("-g", "None")], &[("b.o", "2"), ("c.o", "3")], &[(ROOTS, "j"), ("ptxas", "13.1")]),
                &[
                    "ptxas: is another one",
                    "the kernels and variables that host code refers to changed",
                    "c.o: was added",
                    "a.o: was removed",
                    "b.o: was removed",
                ],
            ),
            (
                link(
                    &[("-O", "Some(O2)"), ("-g", "None")],
                    &[("b.o", "2"), ("a.o", "1"), ("b.o", "3")],
                    &[(ROOTS, "k"), ("ptxas", "13.0")],
                ),
                &["the inputs come in another order"],
            ),
        ];
        for (new, expected) in cases {
            assert_eq!(reasons(Some(&noted(&old)), &noted(new)), *expected);
        }
        assert_eq!(reasons(None, &noted(&old)), ["this output was not linked with this cache before"]);
        let arranged = |how: &str| noted(&link(&[], &[("a.o", "1")], &[(ARRANGEMENT, how)]));
        assert_eq!(reasons(Some(&arranged("1")), &arranged("2")), ["the inputs lie in other objects"]);
    }

    #[test]
    fn the_last_link_of_an_output_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = line(&[], &[]);
        options.cache.dir = Some(dir.path().join("c"));
        let diagnostics = Diagnostics::new(&options);
        let cache = open(&options, &diagnostics);
        let output = dir.path().join("program");
        let last = || Record::read(cache.get(Kind::Record, &key_of(&output)).unwrap().section(0)).unwrap();
        let one = link(&[("-O", "None")], &[("a.o", "1")], &[]);
        let two = link(&[("-O", "None")], &[("a.o", "2")], &[]);
        note(&cache, &output, Some(&one), Outcome::Miss(None));
        assert_eq!((last().outcome.as_str(), last().output.as_str()), ("miss", output.to_str().unwrap()));
        note(&cache, &output, Some(&two), Outcome::Miss(None));
        assert_eq!(last().reasons, ["a.o: its device code changed"]);
        note(&cache, &output, None, Outcome::Uncached("because"));
        assert_eq!((last().outcome.as_str(), last().reasons), ("uncached", vec!["because".to_owned()]));
        note(&cache, &output, Some(&one), Outcome::Miss(None));
        assert_eq!(last().reasons, ["a.o: its device code changed"]);
        note(&cache, &output, Some(&one), Outcome::Miss(Some("other")));
        assert_eq!(last().reasons, ["other"]);
        // A hit is compared with later, and leaves what is said of the last miss.
        note(&cache, &output, Some(&two), Outcome::Hit);
        assert_eq!((last().outcome.as_str(), last().reasons), ("miss", vec!["other".to_owned()]));
        note(&cache, &output, Some(&one), Outcome::Miss(None));
        assert_eq!(last().reasons, ["a.o: its device code changed"]);
        let written = std::fs::metadata(cache.store.as_ref().unwrap().path(Kind::Record, &key_of(&output))).unwrap();
        note(&cache, &output, Some(&one), Outcome::Hit);
        let again = std::fs::metadata(cache.store.as_ref().unwrap().path(Kind::Record, &key_of(&output))).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::ino(&written), std::os::unix::fs::MetadataExt::ino(&again));
        let other = dir.path().join("other");
        note(&cache, &other, Some(&one), Outcome::Hit);
        let record = Record::read(cache.get(Kind::Record, &key_of(&other)).unwrap().section(0)).unwrap();
        assert_eq!((record.outcome.as_str(), record.to_json()["reasons"].as_array().unwrap().len()), ("hit", 0));
    }

    #[test]
    fn a_first_link_is_compared_with_the_last_one_of_that_name() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = line(&[], &[]);
        options.cache.dir = Some(dir.path().join("c"));
        let diagnostics = Diagnostics::new(&options);
        let cache = open(&options, &diagnostics);
        let reasons = |place: &str, input: (&str, &str)| {
            let output = dir.path().join(place);
            note(&cache, &output, Some(&link(&[("-O", "None")], &[input], &[])), Outcome::Miss(None));
            Record::read(cache.get(Kind::Record, &key_of(&output)).unwrap().section(0)).unwrap().reasons
        };
        let alone = ["this output was not linked with this cache before"];
        let compared = |with: &str| format!("{}; compared with {}:", alone[0], dir.path().join(with).display());
        assert_eq!(reasons("1/app", ("a.o", "1")), alone);
        assert_eq!(reasons("1/other", ("a.o", "2")), alone);
        assert_eq!(reasons("2/app", ("a.o", "2")), [compared("1/app").as_str(), "a.o: its device code changed"]);
        assert_eq!(reasons("3/app", ("a.o", "1")), [compared("2/app").as_str(), "a.o: its device code changed"]);
        // Another program that happens to have the name.
        assert_eq!(reasons("4/app", ("b.o", "1")), alone);
        assert_eq!(reasons("1/app", ("a.o", "2")), ["a.o: its device code changed"]);
    }

    #[test]
    fn other_forms_are_no_record() {
        let record = Record { output: "o".into(), time: 1, outcome: "hit".into(), reasons: vec![], key: "k".into(), fields: vec![] };
        assert_eq!(Record::read(record.written().as_bytes()), Some(record.clone()));
        let value: Value = serde_json::from_str(&record.written()).unwrap();
        for name in value.as_object().unwrap().keys() {
            let mut other = value.clone();
            other[name] = json!({});
            assert_eq!(Record::read(other.to_string().as_bytes()), None, "{name}");
            other.as_object_mut().unwrap().remove(name);
            assert_eq!(Record::read(other.to_string().as_bytes()), None, "{name}");
        }
        assert_eq!(Record::read(b"{"), None);
    }
}
