//! What the URL of a store means. What is secret in it is taken apart here and shown nowhere.

use std::fmt;

use super::s3::Credentials;
use crate::toolchain::Env;

/// A text that no message shows.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Http(HttpPlace),
    Redis(RedisPlace),
}

/// One that is spoken to with GET and PUT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HttpPlace {
    /// Scheme, host and port.
    pub(super) origin: String,
    /// Encoded, with a slash before and none behind.
    pub(super) path: String,
    /// Value of the header `Authorization`, where that is always the same.
    pub(super) authorization: Option<Secret>,
    /// Requests are signed.
    pub(super) s3: Option<S3Place>,
}

/// What signatures need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct S3Place {
    pub(super) region: String,
    /// None for a bucket that everybody may read.
    pub(super) credentials: Option<Credentials>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RedisPlace {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: u32,
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
}

/// What holds a bearer token.
pub(super) const TOKEN: &str = "WARPLINK_CACHE_REMOTE_TOKEN";

impl Place {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// What is wrong with it, without quoting it.
    pub(super) fn parse(url: &str, env: Env) -> Result<Place, String> {
        let form = || "expected http://HOST/PATH, https://HOST/PATH, s3://BUCKET/PREFIX or redis://HOST/DATABASE".to_owned();
        if url.contains(|c: char| c.is_whitespace() || c.is_control() || !c.is_ascii()) {
            return Err("a URL has no blanks and no letters beyond ASCII".to_owned());
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(form)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        let (name, password) = user.map_or((None, None), |user| match user.split_once(':') {
            Some((name, password)) => (Some(decoded(name)), Some(Secret(decoded(password)))),
            None => (Some(decoded(user)), None),
        });
        if host.is_empty() {
            return Err(form());
        }
        let path = path.trim_matches('/');
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        match scheme {
            "http" | "https" => {
                let token = env(TOKEN).and_then(|token| token.into_string().ok()).filter(|token| !token.is_empty());
                let basic = name.map(|name| {
                    let password = password.map(|password| password.0).unwrap_or_default();
                    Secret(format!("Basic {}", base64(format!("{name}:{password}").as_bytes())))
                });
                let authorization = basic.or(token.map(|token| Secret(format!("Bearer {token}"))));
                Ok(Place::Http(HttpPlace { origin: format!("{scheme}://{host}"), path, authorization, s3: None }))
            }
            "s3" => s3(host, &path, query, env),
            "redis" => {
                let (host, port) = match host.rsplit_once(':') {
                    Some((host, port)) if !host.is_empty() && !port.ends_with(']') => {
                        (host, port.parse().map_err(|_| "its port is no number".to_owned())?)
                    }
                    _ => (host, 6379),
                };
                let database = path.trim_start_matches('/');
                let database = if database.is_empty() { Ok(0) } else { database.parse() };
                Ok(Place::Redis(RedisPlace {
                    host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
                    port,
                    database: database.map_err(|_| "the database of Redis is a number".to_owned())?,
                    user: name.filter(|name| !name.is_empty()),
                    password,
                }))
            }
            _ => Err(form()),
        }
    }

    /// The URL as messages show it.
    pub(super) fn shown(&self) -> String {
        match self {
            Place::Http(place) => format!("{}{}", place.origin, place.path),
            Place::Redis(place) => format!("redis://{}:{}/{}", place.host, place.port, place.database),
        }
    }
}

/// A bucket at Amazon, or at the endpoint that the query or the environment names.
fn s3(bucket: &str, path: &str, query: &str, env: Env) -> Result<Place, String> {
    let variable = |name: &str| env(name).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty());
    let argument = |name: &str| {
        let values = query.split('&').filter_map(|pair| pair.split_once('='));
        values.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next_back()
    };
    let region = argument("region").or_else(|| variable("AWS_REGION")).or_else(|| variable("AWS_DEFAULT_REGION"));
    let region = region.unwrap_or_else(|| "us-east-1".to_owned());
    let endpoint = argument("endpoint").or_else(|| variable("AWS_ENDPOINT_URL_S3")).or_else(|| variable("AWS_ENDPOINT_URL"));
    let (origin, path) = match endpoint {
        // Others have the bucket in the path, since their hosts have no name for each.
        Some(endpoint) => {
            let endpoint = endpoint.trim_end_matches('/').to_owned();
            let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
            if host.is_none_or(|host| host.is_empty() || host.contains(['/', '@', '?'])) {
                return Err("the endpoint of S3 is to be http://HOST or https://HOST".to_owned());
            }
            (endpoint, format!("/{bucket}{path}"))
        }
        None => (format!("https://{bucket}.s3.{region}.amazonaws.com"), path.to_owned()),
    };
    let credentials = match (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
        (Some(id), Some(secret)) => Some(Credentials { id, secret: Secret(secret), session: variable("AWS_SESSION_TOKEN").map(Secret) }),
        (None, None) => None,
        _ => return Err("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY belong together".to_owned()),
    };
    Ok(Place::Http(HttpPlace { origin, path: encoded(&decoded(&path)), authorization: None, s3: Some(S3Place { region, credentials }) }))
}

/// `%41` is `A`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex =
            (*first == b'%').then(|| after.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok())).flatten();
        bytes.push(hex.unwrap_or(*first));
        rest = if hex.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A path as S3's signatures want it: everything but unreserved characters and slashes as `%41`.
fn encoded(path: &str) -> String {
    path.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let letter = LETTERS.get((word >> (18 - 6 * index)) as usize & 63).copied().unwrap_or(b'=');
            text.push(if index <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str, variables: &[(&str, &str)]) -> Result<Place, String> {
        Place::parse(url, &|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into()))
    }

    fn http(url: &str, variables: &[(&str, &str)]) -> HttpPlace {
        match parse(url, variables) {
            Ok(Place::Http(place)) => place,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn urls_of_http() {
        let place = http("http://cache.example:8080/warplink/", &[]);
        assert_eq!((place.origin.as_str(), place.path.as_str(), place.authorization), ("http://cache.example:8080", "/warplink", None));
        let place = http("https://me:pass%40word@cache/", &[(TOKEN, "unused")]);
        assert_eq!((place.origin.as_str(), place.path.as_str()), ("https://cache", ""));
        assert_eq!(place.authorization, Some(Secret("Basic bWU6cGFzc0B3b3Jk".to_owned())));
        assert_eq!(http("https://cache", &[(TOKEN, "t0k")]).authorization, Some(Secret("Bearer t0k".to_owned())));
    }

    #[test]
    fn urls_of_s3() {
        let keys = [("AWS_ACCESS_KEY_ID", "AKIA"), ("AWS_SECRET_ACCESS_KEY", "hush"), ("AWS_SESSION_TOKEN", "session")];
        let place = http("s3://bucket/some/prefix", &keys);
        assert_eq!((place.origin.as_str(), place.path.as_str()), ("https://bucket.s3.us-east-1.amazonaws.com", "/some/prefix"));
        let credentials = place.s3.unwrap().credentials.unwrap();
        assert_eq!((credentials.id.as_str(), credentials.session), ("AKIA", Some(Secret("session".to_owned()))));
        let place = http("s3://bucket/a b".replace(' ', "%20").as_str(), &[("AWS_REGION", "eu-central-1")]);
        assert_eq!((place.origin.as_str(), place.path.as_str()), ("https://bucket.s3.eu-central-1.amazonaws.com", "/a%20b"));
        assert_eq!(place.s3, Some(S3Place { region: "eu-central-1".to_owned(), credentials: None }));
        let place = http("s3://bucket/p?endpoint=http://minio:9000&region=x", &[("AWS_ENDPOINT_URL", "https://other")]);
        assert_eq!((place.origin.as_str(), place.path.as_str()), ("http://minio:9000", "/bucket/p"));
        assert_eq!(place.s3.unwrap().region, "x");
        assert_eq!(http("s3://b", &[("AWS_ENDPOINT_URL_S3", "https://h/")]).origin, "https://h");
        assert!(parse("s3://b?endpoint=ftp://x", &[]).is_err());
        assert!(parse("s3://b", &keys[..1]).is_err());
    }

    #[test]
    fn urls_of_redis() {
        let place = |url| match parse(url, &[]) {
            Ok(Place::Redis(place)) => (place.host, place.port, place.database, place.user, place.password.map(|password| password.0)),
            other => panic!("{other:?}"),
        };
        assert_eq!(place("redis://h"), ("h".to_owned(), 6379, 0, None, None));
        assert_eq!(place("redis://:pw@h:7000/3"), ("h".to_owned(), 7000, 3, None, Some("pw".to_owned())));
        assert_eq!(place("redis://u:p%3aw@[::1]:7/"), ("::1".to_owned(), 7, 0, Some("u".to_owned()), Some("p:w".to_owned())));
        assert_eq!(place("redis://[::1]").0, "::1");
        assert!(parse("redis://h/x", &[]).is_err() && parse("redis://h:x", &[]).is_err());
    }

    #[test]
    fn secrets_are_not_shown() {
        let variables = [("AWS_ACCESS_KEY_ID", "AKIA"), ("AWS_SECRET_ACCESS_KEY", "hush"), ("AWS_SESSION_TOKEN", "hush"), (TOKEN, "hush")];
        for url in ["http://user:hush@h/p", "https://h/p", "s3://b/p", "redis://user:hush@h/1"] {
            let place = parse(url, &variables).unwrap();
            for text in [place.shown(), format!("{place:?}")] {
                assert!(!text.contains("hush") && !text.contains(&base64(b"user:hush")), "{text}");
            }
        }
        for wrong in ["", "hush", "ftp://u:hush@h", "http://", "http://u:hush@", "http://u:hush@h/ x", "redis://u:hush@h/no", "s3:///hush"]
        {
            let error = parse(wrong, &[]).unwrap_err();
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn bytes_as_text() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"foobar", "Zm9vYmFy"), (b"\xff\xfe", "//4=")]
        {
            assert_eq!(base64(bytes), text);
        }
        for (text, expected) in [("%41%", "A%"), ("%4", "%4"), ("%zz", "%zz"), ("%", "%"), ("a%2Fb", "a/b")] {
            assert_eq!(decoded(text), expected);
        }
    }
}
