//! As much of Redis's protocol (RESP 2) as it takes to get and set values.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::place::RedisPlace;
use super::{Key, Kind, LARGEST, Speaks};

/// A server, and the connections to it that nobody uses at the moment.
pub(super) struct Redis {
    place: RedisPlace,
    idle: Mutex<Vec<Connection>>,
}

impl Redis {
    pub(super) fn new(place: RedisPlace) -> Redis {
        Redis { place, idle: Mutex::default() }
    }

    /// Sends a command on a connection of its own, which others may have after it.
    fn ask(&self, command: &[&[u8]], until: Instant) -> Result<Reply, String> {
        let idle = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect(until)?,
        };
        let reply = connection.ask(command, until)?;
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(connection);
        }
        Ok(reply)
    }

    fn connect(&self, until: Instant) -> Result<Connection, String> {
        let RedisPlace { host, port, database, user, password } = &self.place;
        let addresses = (host.as_str(), *port).to_socket_addrs().map_err(|error| error.to_string())?;
        let mut failed = "its name has no address".to_owned();
        for address in addresses {
            match TcpStream::connect_timeout(&address, left(until)?) {
                Ok(stream) => {
                    let mut connection = Connection { stream: BufReader::new(stream) };
                    if let Some(password) = password {
                        let user = user.as_ref().map(|user| user.as_bytes());
                        let words: Vec<&[u8]> = [b"AUTH".as_slice()].into_iter().chain(user).chain([password.0.as_bytes()]).collect();
                        connection.ask(&words, until)?;
                    }
                    if *database != 0 {
                        connection.ask(&[b"SELECT", database.to_string().as_bytes()], until)?;
                    }
                    return Ok(connection);
                }
                Err(error) => failed = error.to_string(),
            }
        }
        Err(failed)
    }
}

impl Speaks for Redis {
    fn get(&self, kind: Kind, key: &Key, until: Instant) -> Result<Option<Vec<u8>>, String> {
        match self.ask(&[b"GET", name(kind, key).as_bytes()], until)? {
            Reply::Value(value) => Ok(value),
            Reply::Status => Err("it speaks another protocol".to_owned()),
        }
    }

    fn put(&self, kind: Kind, key: &Key, value: &[u8], until: Instant) -> Result<(), String> {
        self.ask(&[b"SET", name(kind, key).as_bytes(), value], until).map(|_| ())
    }
}

fn name(kind: Kind, key: &Key) -> String {
    format!("warplink:{}:{key}", kind.name())
}

/// The time that is left.
fn left(until: Instant) -> Result<Duration, String> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err("it does not answer in time".to_owned()) } else { Ok(left) }
}

enum Reply {
    /// `+OK` or a number.
    Status,
    /// A string, or nothing.
    Value(Option<Vec<u8>>),
}

struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    fn ask(&mut self, command: &[&[u8]], until: Instant) -> Result<Reply, String> {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for word in command {
            bytes.extend(format!("${}\r\n", word.len()).into_bytes());
            bytes.extend(*word);
            bytes.extend(b"\r\n");
        }
        self.send(&bytes, until)?;
        let line = self.line(until)?;
        let (first, rest) = line.split_at_checked(1).ok_or("it speaks another protocol")?;
        match first {
            "+" | ":" => Ok(Reply::Status),
            // The server's words have nothing of the question in them.
            "-" => Err(format!("it says: {rest}")),
            "$" if rest == "-1" => Ok(Reply::Value(None)),
            "$" => {
                let length: u64 = rest.parse().map_err(|_| "it speaks another protocol")?;
                if length > LARGEST {
                    return Err("it has a value that is larger than any entry".to_owned());
                }
                let mut value = self.bytes(length as usize + 2, until)?;
                value.truncate(length as usize);
                Ok(Reply::Value(Some(value)))
            }
            _ => Err("it speaks another protocol".to_owned()),
        }
    }

    fn send(&mut self, mut bytes: &[u8], until: Instant) -> Result<(), String> {
        let stream = self.stream.get_mut();
        while !bytes.is_empty() {
            stream.set_write_timeout(Some(left(until)?)).map_err(|error| error.to_string())?;
            let sent = stream.write(bytes).map_err(|error| said(&error))?;
            if sent == 0 {
                return Err("it hangs up".to_owned());
            }
            bytes = bytes.get(sent..).unwrap_or_default();
        }
        Ok(())
    }

    /// A line without its end.
    fn line(&mut self, until: Instant) -> Result<String, String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            if line.len() > 1024 {
                return Err("it speaks another protocol".to_owned());
            }
            let taken = {
                let ready = self.ready(until)?;
                let end = ready.iter().position(|&byte| byte == b'\n').map_or(ready.len(), |end| end + 1);
                line.extend(ready.iter().take(end));
                end
            };
            self.stream.consume(taken);
        }
        let text = String::from_utf8_lossy(&line);
        Ok(text.trim_end().to_owned())
    }

    fn bytes(&mut self, length: usize, until: Instant) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let taken = {
                let ready = self.ready(until)?;
                let take = ready.len().min(length - bytes.len());
                bytes.extend(ready.iter().take(take));
                take
            };
            self.stream.consume(taken);
        }
        Ok(bytes)
    }

    /// What has come, at least one byte.
    fn ready(&mut self, until: Instant) -> Result<&[u8], String> {
        self.stream.get_ref().set_read_timeout(Some(left(until)?)).map_err(|error| error.to_string())?;
        match self.stream.fill_buf() {
            Ok([]) => Err("it hangs up".to_owned()),
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(said(&error)),
        }
    }
}

/// The system's words; what it calls "resource temporarily unavailable" is a timeout.
fn said(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
        return "it does not answer in time".to_owned();
    }
    error.to_string()
}
