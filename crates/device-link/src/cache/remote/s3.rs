//! Signatures of requests to S3, version 4, as Amazon documents them ("Authenticating Requests: Using the Authorization Header").

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ring::{digest, hmac};

use super::place::Secret;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) id: String,
    pub(super) secret: Secret,
    /// Of a role that is assumed for a while.
    pub(super) session: Option<Secret>,
}

/// What is signed.
pub(super) struct Request<'r> {
    pub(super) method: &'r str,
    pub(super) host: &'r str,
    /// Encoded.
    pub(super) path: &'r str,
    pub(super) body: &'r [u8],
    pub(super) region: &'r str,
}

/// The headers that make a request a signed one, `Host` aside.
pub(super) fn headers(request: &Request, credentials: &Credentials, now: SystemTime) -> Vec<(&'static str, String)> {
    signed(request, credentials, now, &[])
}

fn signed(request: &Request, credentials: &Credentials, now: SystemTime, more: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let (date, time) = date_and_time(now);
    let hash = hex(digest::digest(&digest::SHA256, request.body).as_ref());
    let mut headers = vec![("host", request.host.to_owned()), ("x-amz-content-sha256", hash.clone()), ("x-amz-date", time.clone())];
    headers.extend(credentials.session.iter().map(|session| ("x-amz-security-token", session.0.clone())));
    headers.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
    headers.sort();
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let mut canonical = format!("{}\n{}\n\n", request.method, request.path);
    for (name, value) in &headers {
        let _ = writeln!(canonical, "{name}:{}", value.trim());
    }
    let _ = write!(canonical, "\n{names}\n{hash}");
    let scope = format!("{date}/{}/s3/aws4_request", request.region);
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref()));
    let mut key = format!("AWS4{}", credentials.secret.0).into_bytes();
    for part in [date.as_str(), request.region, "s3", "aws4_request"] {
        key = mac(&key, part);
    }
    let signature = hex(&mac(&key, &text));
    headers.retain(|(name, _)| *name != "host");
    let id = &credentials.id;
    headers.push(("authorization", format!("AWS4-HMAC-SHA256 Credential={id}/{scope},SignedHeaders={names},Signature={signature}")));
    headers
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `20130524` and `20130524T000000Z`.
fn date_and_time(now: SystemTime) -> (String, String) {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years from March on, so that the odd day is a year's last: 400 of them have 146097 days.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let date = format!("{year:04}{month:02}{date:02}");
    let time = format!("{date}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60);
    (date, time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_examples_of_amazon_s_documentation() {
        let credentials = Credentials {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned()),
            session: None,
        };
        let now = at(1_369_353_600);
        let signature = |request: &Request, more: &[(&'static str, &str)]| {
            let headers = signed(request, &credentials, now, more);
            let (_, value) = headers.iter().find(|(name, _)| *name == "authorization").cloned().unwrap();
            assert!(headers.iter().any(|(name, value)| *name == "x-amz-date" && value == "20130524T000000Z"));
            value
        };
        let host = "examplebucket.s3.amazonaws.com";
        let get = Request { method: "GET", host, path: "/test.txt", body: b"", region: "us-east-1" };
        assert_eq!(
            signature(&get, &[("range", "bytes=0-9")]),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
             Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
        );
        let put = Request { method: "PUT", host, path: "/test%24file.text", body: b"Welcome to Amazon S3.", region: "us-east-1" };
        let value = signature(&put, &[("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")]);
        assert!(value.ends_with("Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"), "{value}");
    }

    #[test]
    fn a_session_is_signed_too() {
        let credentials = Credentials { id: "id".to_owned(), secret: Secret("s".to_owned()), session: Some(Secret("token".to_owned())) };
        let request = Request { method: "GET", host: "h", path: "/x", body: b"", region: "r" };
        let headers = headers(&request, &credentials, at(0));
        assert!(headers.contains(&("x-amz-security-token", "token".to_owned())));
        assert!(
            headers.iter().any(|(_, value)| value.contains("SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,"))
        );
        assert!(headers.iter().all(|(name, _)| *name != "host"));
    }

    #[test]
    fn days_have_dates() {
        for (seconds, expected) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (951_868_800, "20000301T000000Z"),
            (1_709_164_800, "20240229T000000Z"),
            (4_107_542_400, "21000301T000000Z"),
            (1_796_083_262, "20261201T000102Z"),
        ] {
            assert_eq!(date_and_time(at(seconds)).1, expected);
        }
    }
}
