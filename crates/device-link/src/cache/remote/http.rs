//! Stores that are spoken to by HTTP.
//!
//! As Bazel's remote cache speaks it, an entry is an action's result: `PUT` and `GET` of `/ac/KEY`, with a message `ActionResult` of the Remote
//! Execution API whose one field, `stdout_raw`, is the entry. Servers that check what they are given, such as bazel-remote, then take it; to
//! plain and to WebDAV servers it is a file. S3 gets the entry as it is.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use super::place::{HttpPlace, S3Place};
use super::{Key, Kind, LARGEST, Speaks, s3};
use crate::toolchain::Env;

/// Field 5, a string of bytes.
const STDOUT_RAW: u8 = 5 << 3 | 2;

/// A server.
pub(super) struct Http {
    agent: Agent,
    place: HttpPlace,
}

impl Http {
    /// Certificates of authorities are Mozilla's, or those of the file that `SSL_CERT_FILE` names.
    ///
    /// # Errors
    /// That file cannot be read.
    pub(super) fn new(place: HttpPlace, timeout: Duration, env: Env) -> Result<Http, String> {
        let roots = match env("SSL_CERT_FILE").filter(|file| !file.is_empty()) {
            Some(file) if place.origin.starts_with("https:") => {
                let pem = std::fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
                let certificate = |item| match item {
                    Ok(PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                };
                let certificates: Vec<Certificate<'static>> = parse_pem(&pem).filter_map(certificate).collect();
                RootCerts::Specific(Arc::new(certificates))
            }
            _ => RootCerts::WebPki,
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .max_redirects(3)
            .timeout_global(Some(timeout))
            .user_agent(concat!("warplink/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .build();
        Ok(Http { agent: config.into(), place })
    }

    /// The path of an entry, and of the collection that it lies in.
    fn path(&self, kind: Kind, key: &Key) -> (String, String) {
        let HttpPlace { path, s3, .. } = &self.place;
        let collection = if s3.is_some() { format!("{path}/{}", kind.name()) } else { format!("{path}/ac") };
        (format!("{collection}/{key}"), collection)
    }

    /// The status and, where it is a good one, the body.
    fn request(&self, method: &str, path: &str, body: &[u8]) -> Result<(u16, Vec<u8>), String> {
        let HttpPlace { origin, authorization, s3, .. } = &self.place;
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{origin}{path}"));
        if let Some(authorization) = authorization {
            request = request.header("authorization", &authorization.0);
        }
        if let Some(S3Place { region, credentials: Some(credentials) }) = s3 {
            let host = origin.split_once("://").map_or(origin.as_str(), |(_, host)| host);
            let signed = s3::Request { method, host, path, body, region };
            for (name, value) in s3::headers(&signed, credentials, SystemTime::now()) {
                request = request.header(name, value);
            }
        }
        let said = |error: ureq::Error| match error {
            ureq::Error::Timeout(_) => "it does not answer in time".to_owned(),
            other => other.to_string(),
        };
        let response = if method == "PUT" {
            self.agent.run(request.body(body).map_err(|error| error.to_string())?)
        } else {
            self.agent.run(request.body(()).map_err(|error| error.to_string())?)
        };
        let mut response = response.map_err(said)?;
        let status = response.status().as_u16();
        let body = if status == 200 && method == "GET" {
            response.body_mut().with_config().limit(LARGEST).read_to_vec().map_err(said)?
        } else {
            Vec::new()
        };
        Ok((status, body))
    }
}

impl Speaks for Http {
    fn get(&self, kind: Kind, key: &Key, _: Instant) -> Result<Option<Vec<u8>>, String> {
        let (status, body) = self.request("GET", &self.path(kind, key).0, b"")?;
        match status {
            // Bytes that are no such message are for the check of the entry to refuse.
            200 if self.place.s3.is_none() => Ok(Some(result_entry(&body).unwrap_or(&body).to_vec())),
            200 => Ok(Some(body)),
            404 | 410 => Ok(None),
            status => Err(refusal(status, "GET")),
        }
    }

    fn put(&self, kind: Kind, key: &Key, value: &[u8], _: Instant) -> Result<(), String> {
        let (path, collection) = self.path(kind, key);
        let message = if self.place.s3.is_none() { entry_result(value) } else { value.to_vec() };
        let (mut status, _) = self.request("PUT", &path, &message)?;
        if self.place.s3.is_none() && matches!(status, 404 | 409 | 500) {
            // WebDAV makes no collection by itself, which is a conflict (409) or, to nginx, an error. That it is there already is as good; what
            // is really wrong the next answer says.
            self.request("MKCOL", &format!("{collection}/"), b"")?;
            (status, _) = self.request("PUT", &path, &message)?;
        }
        if (200..300).contains(&status) { Ok(()) } else { Err(refusal(status, "PUT")) }
    }
}

fn refusal(status: u16, method: &str) -> String {
    let meaning = match status {
        401 => " (it wants a name and a password, or others)",
        403 => " (it does not allow this)",
        405 => " (it does not take files)",
        413 => " (the entry is too large for it)",
        500.. => " (it is in trouble)",
        _ => "",
    };
    format!("it answers {method} with {status}{meaning}")
}

/// The message that has an entry as its one field.
fn entry_result(entry: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(entry.len() + 11);
    message.push(STDOUT_RAW);
    let mut length = entry.len() as u64;
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend(entry);
    message
}

/// The entry in such a message. Other fields, which a server may have added, are passed over.
fn result_entry(message: &[u8]) -> Option<&[u8]> {
    let mut rest = message;
    while !rest.is_empty() {
        let tag = varint(&mut rest)?;
        let length = match tag & 7 {
            0 => {
                varint(&mut rest)?;
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut rest)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (value, after) = rest.split_at_checked(length)?;
        if tag == u64::from(STDOUT_RAW) {
            return Some(value);
        }
        rest = after;
    }
    None
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_the_output_of_an_action() {
        for length in [0, 1, 127, 128, 300, 70_000] {
            let entry = vec![7; length];
            let message = entry_result(&entry);
            assert_eq!(result_entry(&message), Some(&entry[..]));
            // An exit code, a fixed number and metadata before it.
            let more = [&[0x20, 1, 0x3d, 1, 2, 3, 4, 0x4a, 2, 9, 9][..], &message].concat();
            assert_eq!(result_entry(&more), Some(&entry[..]));
        }
        assert_eq!(entry_result(b"abc"), [0x2a, 3, b'a', b'b', b'c']);
        for wrong in
            [&b""[..], b"\x2a", b"\x2a\x05abc", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\x2b\x01a", b"\x4a\xff\xff\xff\xff\x0f"]
        {
            assert_eq!(result_entry(wrong), None, "{wrong:?}");
        }
    }
}
