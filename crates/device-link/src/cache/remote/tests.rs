//! Stores that behave and stores that do not, on the loopback interface. Real servers: `lit-tests/cache/remote.test`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use super::*;
use crate::cache::tests::line;
use crate::cache::{Cache, Kind};
use crate::diagnostics::Diagnostics;
use crate::options::{Options, RemoteUrl};

const KEY: Key = Key::from_bytes([3; 32]);
const OTHER: Key = Key::from_bytes([4; 32]);

/// What a server does with a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It keeps what it is given and gives it back.
    Good,
    /// It gives every name the value of the last one.
    Mixed,
    /// It gives back other bytes.
    Damaged,
    /// It never answers.
    Silent,
    /// It refuses.
    Refusing,
    /// It hangs up.
    HangsUp,
    /// It answers with something that is no HTTP and no Redis.
    Nonsense,
    /// It promises more than it sends.
    CutOff,
}

struct Server {
    port: u16,
    /// Questions so far.
    asked: Arc<AtomicUsize>,
}

impl Server {
    /// A server that lives as long as the test program.
    fn start(manner: Manner, redis: bool) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let (values, count) = (Arc::new(Mutex::new(HashMap::new())), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (values, count) = (values.clone(), count.clone());
                std::thread::spawn(move || {
                    if redis { serve_redis(stream, manner, &values, &count) } else { serve_http(stream, manner, &values, &count) }
                });
            }
        });
        Server { port, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

type Values = Mutex<HashMap<String, Vec<u8>>>;

/// The answer to a question: a value, none, or for a new value that it is kept. Nothing where it goes wrong already.
fn answer(stream: &mut TcpStream, manner: Manner, values: &Values, name: &str, new: Option<Vec<u8>>) -> Option<Option<Vec<u8>>> {
    match manner {
        Manner::Silent => {
            // Until the other side has had enough.
            let _ = stream.read(&mut [0; 64]);
            return None;
        }
        Manner::HangsUp => return None,
        Manner::Nonsense => {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
            return None;
        }
        _ => {}
    }
    let mut values = values.lock().unwrap();
    if let Some(new) = new {
        values.insert(name.to_owned(), new.clone());
        values.insert("last".to_owned(), new);
        return Some(None);
    }
    let mut value = values.get(if manner == Manner::Mixed { "last" } else { name }).cloned();
    if manner == Manner::Damaged
        && let Some(last) = value.as_mut().and_then(|value| value.last_mut())
    {
        *last ^= 1;
    }
    Some(value)
}

fn serve_http(mut stream: TcpStream, manner: Manner, values: &Values, count: &AtomicUsize) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut first, mut length) = (String::new(), 0);
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if header.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        count.fetch_add(1, Ordering::SeqCst);
        let words: Vec<&str> = first.split(' ').collect();
        let new = (words[0] == "PUT").then_some(body);
        let is_new = new.is_some();
        let Some(value) = answer(&mut stream, manner, values, words[1], new) else { return };
        let (status, body) = match (manner, value) {
            (Manner::Refusing, _) => (503, Vec::new()),
            (_, Some(value)) => (200, value),
            (_, None) => (if is_new { 201 } else { 404 }, Vec::new()),
        };
        let promised = if manner == Manner::CutOff { body.len() + 100 } else { body.len() };
        let _ = stream.write_all(format!("HTTP/1.1 {status} x\r\ncontent-length: {promised}\r\n\r\n").as_bytes());
        let _ = stream.write_all(&body);
        if manner == Manner::CutOff {
            return;
        }
    }
}

fn serve_redis(mut stream: TcpStream, manner: Manner, values: &Values, count: &AtomicUsize) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let number = |reader: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|&read| read > 0)?;
        line[1..].trim().parse::<usize>().ok()
    };
    while let Some(words) = number(&mut reader) {
        let command: Vec<Vec<u8>> = (0..words)
            .map(|_| {
                let mut word = vec![0; number(&mut reader).unwrap() + 2];
                reader.read_exact(&mut word).unwrap();
                word.truncate(word.len() - 2);
                word
            })
            .collect();
        count.fetch_add(1, Ordering::SeqCst);
        let name = String::from_utf8(command[1].clone()).unwrap();
        let reply = match &command[0][..] {
            b"AUTH" if command.last().unwrap() != b"hush" => b"-WRONGPASS invalid username-password pair\r\n".to_vec(),
            b"AUTH" | b"SELECT" => b"+OK\r\n".to_vec(),
            _ if manner == Manner::Refusing => b"-LOADING Redis is loading the dataset in memory\r\n".to_vec(),
            _ => {
                let new = command.get(2).cloned();
                let is_new = new.is_some();
                match answer(&mut stream, manner, values, &name, new) {
                    None => return,
                    Some(_) if is_new => b"+OK\r\n".to_vec(),
                    Some(None) => b"$-1\r\n".to_vec(),
                    Some(Some(value)) => {
                        let promised = if manner == Manner::CutOff { value.len() + 100 } else { value.len() };
                        [format!("${promised}\r\n").into_bytes(), value, b"\r\n".to_vec()].concat()
                    }
                }
            }
        };
        let _ = stream.write_all(&reply);
        if manner == Manner::CutOff && reply.starts_with(b"$") {
            return;
        }
    }
}

fn url(server: &Server, redis: bool) -> String {
    if redis { format!("redis://:hush@127.0.0.1:{}/2", server.port) } else { format!("http://me:hush@127.0.0.1:{}/cache", server.port) }
}

/// The options of a link with a cache in `dir` and a store behind it.
fn options(dir: &Path, url: &str, writes: bool) -> Options {
    let mut options = line(&["--fatal-warnings"], &[]);
    options.cache.dir = Some(dir.to_owned());
    options.cache.remote = Some(RemoteUrl(url.to_owned()));
    options.cache.remote_writes = writes;
    options.cache.remote_timeout = Some(Duration::from_secs(30));
    options
}

fn warned(diagnostics: &Diagnostics) -> Vec<String> {
    diagnostics.warned().into_iter().map(|(name, text)| format!("{name}: {text}")).collect()
}

#[test]
fn what_one_machine_makes_another_one_has() {
    for redis in [false, true] {
        let server = Server::start(Manner::Good, redis);
        let dir = tempfile::tempdir().unwrap();
        let entry = |machine: &str, writes: bool, put: bool| {
            let options = options(&dir.path().join(machine), &url(&server, redis), writes);
            let diagnostics = Diagnostics::new(&options);
            let cache = Cache::open(&options, &|_| None, &diagnostics);
            let before = cache.get(Kind::Assembly, &KEY).map(|entry| entry.sections);
            if put {
                cache.put(Kind::Assembly, &KEY, &[b"cubin", b"", &vec![7; 100_000]], &[]);
                // Only this machine's business.
                cache.put(Kind::Tool, &KEY, &[b"tool"], &[]);
            }
            assert_eq!((warned(&diagnostics), diagnostics.failed()), (Vec::new(), false));
            before
        };
        assert_eq!(entry("developer", false, false), None);
        // Who may only read writes nothing.
        assert_eq!(entry("another", false, true), None);
        assert_eq!(entry("developer", false, false), None);
        assert_eq!(entry("ci", true, true), None);
        let expected = Some(vec![b"cubin".to_vec(), Vec::new(), vec![7; 100_000]]);
        assert_eq!(entry("developer", false, false), expected);
        // From its own disk now.
        let asked = server.asked();
        assert_eq!(entry("developer", false, false), expected);
        assert_eq!(server.asked(), asked);
    }
}

#[test]
fn a_store_that_misbehaves_is_left_alone() {
    for redis in [false, true] {
        for (manner, expected) in [
            (Manner::Mixed, "what it has for an entry is none: an entry for another key"),
            (Manner::Damaged, "what it has for an entry is none: its checksum is wrong"),
            (Manner::Refusing, if redis { "it says: LOADING Redis is loading" } else { "it answers GET with 503 (it is in trouble)" }),
            (Manner::Silent, "it does not answer in time"),
            (Manner::HangsUp, ""),
            (Manner::Nonsense, ""),
            (Manner::CutOff, ""),
        ] {
            let server = Server::start(manner, redis);
            let dir = tempfile::tempdir().unwrap();
            let mut options = options(&dir.path().join("c"), &url(&server, redis), true);
            // Filled by one that behaves, so that there is something to be wrong.
            if matches!(manner, Manner::Mixed | Manner::Damaged | Manner::CutOff) {
                let diagnostics = Diagnostics::new(&options);
                let cache = Cache::open(&options, &|_| None, &diagnostics);
                cache.put(Kind::Assembly, &KEY, &[b"one"], &[]);
                cache.put(Kind::Assembly, &OTHER, &[b"other"], &[]);
                assert!(cache.store.as_ref().is_some_and(|store| store.clear().is_ok()));
            }
            if manner == Manner::Silent {
                options.cache.remote_timeout = Some(Duration::from_millis(200));
            }
            let before = server.asked();
            let diagnostics = Diagnostics::new(&options);
            let cache = Cache::open(&options, &|_| None, &diagnostics);
            assert_eq!(cache.get(Kind::Assembly, &KEY), None, "{manner:?}");
            let asked = server.asked();
            assert!(asked > before, "{manner:?}");
            // The link goes on with what it has, and says once that it does.
            cache.put(Kind::Assembly, &KEY, &[b"made here"], &[]);
            assert_eq!(cache.get(Kind::Assembly, &KEY).map(|entry| entry.section(0).to_vec()), Some(b"made here".to_vec()));
            assert_eq!(cache.get(Kind::Assembly, &OTHER), None);
            assert_eq!(server.asked(), asked, "{manner:?}");
            let warned = warned(&diagnostics);
            let place =
                if redis { format!("redis://127.0.0.1:{}/2", server.port) } else { format!("http://127.0.0.1:{}/cache", server.port) };
            let start = format!("cache-remote: {place}: {expected}");
            assert!(warned.len() == 1 && warned[0].starts_with(&start), "{manner:?} {warned:?}");
            assert!(!warned[0].contains("hush") && !warned[0].contains("me:"), "{warned:?}");
            // Not even --fatal-warnings makes it an error.
            assert!(!diagnostics.failed());
        }
    }
}

#[test]
fn nobody_there_is_no_error() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    for (url, expected) in [
        (format!("http://u:hush@127.0.0.1:{port}"), format!("http://127.0.0.1:{port}: ")),
        (format!("redis://u:hush@127.0.0.1:{port}"), format!("redis://127.0.0.1:{port}/0: ")),
        (format!("s3://bucket?endpoint=http://127.0.0.1:{port}"), format!("http://127.0.0.1:{port}/bucket: ")),
        ("nonsense://u:hush@h".to_owned(), "the remote cache is not used: expected http://HOST/PATH".to_owned()),
    ] {
        let options = options(&dir.path().join("c"), &url, true);
        let diagnostics = Diagnostics::new(&options);
        let cache = Cache::open(&options, &|_| None, &diagnostics);
        assert_eq!(cache.get(Kind::Link, &KEY), None);
        let warned = warned(&diagnostics);
        assert!(warned.len() == 1 && warned[0].starts_with(&format!("cache-remote: {expected}")), "{warned:?}");
        assert!(!warned[0].contains("hush") && !format!("{options:?}").contains("hush"), "{warned:?}");
    }
}

#[test]
fn a_wrong_password_is_said_without_it() {
    let server = Server::start(Manner::Good, true);
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir.path().join("c"), &format!("redis://:secret@127.0.0.1:{}", server.port), false);
    let diagnostics = Diagnostics::new(&options);
    assert_eq!(Cache::open(&options, &|_| None, &diagnostics).get(Kind::Link, &KEY), None);
    let warned = warned(&diagnostics);
    assert!(warned[0].contains("it says: WRONGPASS") && !warned[0].contains("secret"), "{warned:?}");
}

/// A store that takes so long.
struct Slow(Duration);

impl Speaks for Slow {
    fn get(&self, _: Kind, _: &Key, _: Instant) -> Result<Option<Vec<u8>>, String> {
        std::thread::sleep(self.0);
        Ok(Some(b"late".to_vec()))
    }

    fn put(&self, _: Kind, _: &Key, _: &[u8], _: Instant) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn slowness_adds_up() {
    let speaks = Box::new(Slow(LATENCY + Duration::from_millis(60)));
    let timeout = Duration::from_millis(100);
    let remote = Remote { speaks, writes: true, timeout, shown: "slow".to_owned(), off: AtomicBool::new(false), excess: AtomicU64::new(0) };
    // Two questions at most: each is at least 60 ms beyond what is free, and 100 ms may be.
    let answers: Vec<_> = (0..4).map(|_| remote.get(Kind::Link, &KEY)).collect();
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 1, "{answers:?}");
    assert!(answers.iter().skip(2).all(|answer| *answer == Ok(None)), "{answers:?}");
    assert!(!remote.is_written());
}
