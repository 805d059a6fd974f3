//! The errors of callers for those of `object_store`: the same kinds and words as `tierlog.runtime.stores.reading.remote_store`,
//! so that a user reads one message whichever path met the error.

use object_store::Error;

use crate::own_hosts;

/// An error on its way to Java: a class of `tierlog.errors` and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Name of the class.
    pub kind: &'static str,
    /// Names the object; no secret and no query of a URL.
    pub text: String,
}

impl Failure {
    /// An option that the user must change.
    pub fn config(text: impl Into<String>) -> Self {
        Failure { kind: "ConfigError", text: text.into() }
    }

    /// A failure that trying again will not mend.
    pub fn store(text: impl Into<String>) -> Self {
        Failure { kind: "StoreError", text: text.into() }
    }
}

const PASSING_STATUS: [u16; 7] = [408, 425, 429, 500, 502, 503, 504];
/// Words of errors without a status: no answer came, or it broke off.
const NO_ANSWER: [&str; 7] = [
    "HTTP error",
    "HttpError",
    "error sending request",
    "request or response body error",
    "timed out",
    "connection closed",
    "connection reset",
];
/// Codes that S3 sends with a status that says less.
const REFUSED: [&str; 4] = ["ExpiredToken", "InvalidToken", "TokenRefreshRequired", "InvalidAccessKeyId"];
const PASSING: [&str; 3] = ["RequestTimeout", "SlowDown", "InternalError"];
/// Words for a range that begins at or behind the end of the object, in lower case.
const BEHIND_END: [&str; 5] = [
    "starttoolarge",
    "wanted range starting at",
    "invalidrange",
    "416 range not satisfiable",
    "requested range not satisfiable",
];

const CERTIFICATE_FAULTS: [(&str, &str); 7] = [
    ("Expired", "has expired"),
    ("NotValidYet", "is not valid yet (does this machine's clock go right?)"),
    ("UnknownIssuer", "comes from an issuer that is not trusted (store.root_certificate takes another one, as PEM)"),
    ("NotValidForName", "is for other names than the endpoint's"),
    ("BadSignature", "has a signature that is not its issuer's"),
    ("Revoked", "was revoked"),
    ("CaUsedAsEndEntity", "is an authority's, signed by itself, and no server's"),
];
/// Messages that say only that no answer came.
const CAUSELESS: [&str; 2] = ["error sending request", "HTTP error"];
const MESSAGE_CHARACTERS_MAX: usize = 300;
const CONNECTION_FAULTS: [(&str, &str); 9] = [
    ("InvalidContentType", "the server does not speak TLS there (http:// in place of https://?)"),
    ("AlertReceived(", "the server ended the TLS handshake"),
    ("PeerIncompatible(", "the server speaks no version of TLS that is still safe"),
    ("ConnectionRefused", "connection refused"),
    ("dns error", "the host's name is not known"),
    ("ConnectionReset", "connection reset"),
    ("NetworkUnreachable", "no way to its network"),
    ("HostUnreachable", "no way to the host"),
    ("TimedOut", "timed out"),
];

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// What is wrong with the server's certificate, out of the error's long form, which is not shown: it holds requests as
/// they were signed. rustls names what it found: `InvalidCertificate(ExpiredContext { … })`.
fn certificate_fault(long: &str) -> Option<String> {
    let (_, mut found) = long.split_once("InvalidCertificate(")?;
    for wrapper in ["Other(", "OtherError("] {
        found = found.trim_start();
        found = found.strip_prefix(wrapper).unwrap_or(found);
    }
    found = found.trim_start();
    let word = &found[..found.find(|c| !is_word(c)).unwrap_or(found.len())];
    let name = word.strip_suffix("Context").unwrap_or(word);
    let known = CERTIFICATE_FAULTS.iter().find(|(mark, _)| *mark == name);
    let told = known.map_or_else(|| format!("is refused: {name}"), |(_, told)| (*told).to_owned());
    let presented = long.split_once("presented:").and_then(|(_, rest)| rest.split_once('[')?.1.split_once(']'));
    match presented {
        Some((names, _)) if name == "NotValidForName" => Some(format!("{told}: {}", names_in(names).join(", "))),
        _ => Some(told),
    }
}

/// The first names of `DnsName("a.example"), …`.
fn names_in(list: &str) -> Vec<&str> {
    let is_name = |c: char| is_word(c) || ".:*-".contains(c);
    let pieces = list.split('(').skip(1).map(|piece| piece.trim_start_matches(['\\', '"']));
    pieces
        .map(|piece| &piece[..piece.find(|c| !is_name(c)).unwrap_or(piece.len())])
        .filter(|n| !n.is_empty())
        .take(5)
        .collect()
}

/// The reason why no connection was made, from the same text.
fn connection_fault(long: &str) -> Option<&'static str> {
    CONNECTION_FAULTS.iter().find(|(mark, _)| long.contains(mark)).map(|(_, told)| *told)
}

/// The error's text without queries of URLs: those may hold signatures. An answer of XML has question marks too, and
/// its code is what tells: it stays.
pub fn short_text(error: &Error) -> String {
    let ends_url = |c: char| c.is_whitespace() || "\"'<>".contains(c);
    let mut told = String::new();
    let text = error.to_string();
    let mut rest = text.as_str();
    while let Some(mark) = rest.find('?') {
        let (before, query) = (&rest[..mark], &rest[mark + 1..]);
        let word = &before[before.rfind(ends_url).map_or(0, |at| at + 1)..];
        let length = if word.contains("://") { query.find(ends_url).unwrap_or(query.len()) } else { 0 };
        told.push_str(before);
        told.push_str(if length > 0 { "?…" } else { "?" });
        rest = &query[length..];
    }
    told.push_str(rest);
    told.trim().to_owned()
}

/// Whether the range began at or behind the object's end: no bytes, rather than an error.
pub fn is_behind_end(error: &Error) -> bool {
    let Error::Generic { .. } = error else { return false };
    let text = error.to_string().to_lowercase();
    BEHIND_END.iter().any(|words| text.contains(words))
}

/// The error for a caller; `place` names the object.
pub fn translate(error: &Error, place: &str) -> Failure {
    let (mut text, long) = (short_text(error), format!("{error:?}"));
    if text.contains(own_hosts::REFUSED) {
        return Failure::store(format!("{place}: {}", own_hosts::REFUSED));
    }
    if let Some(fault) = certificate_fault(&long) {
        return Failure { kind: "StorePermissionError", text: format!("{place}: the server's certificate {fault}") };
    }
    if CAUSELESS.iter().any(|words| text.ends_with(words)) {
        if let Some(cause) = connection_fault(&long) {
            text = match text.strip_suffix("error sending request") {
                Some(head) => format!("{head}{cause}"),
                None => format!("{text}: {cause}"),
            };
        }
    }
    let told = format!("{place}: {}", said(&text));
    let of = |kind| Failure { kind, text: told.clone() };
    match error {
        Error::NotFound { .. } => {
            return Failure { kind: "ObjectNotFoundError", text: format!("{place}: not found") };
        }
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => return of("StorePermissionError"),
        Error::UnknownConfigurationKey { .. } => return Failure::config(text),
        _ => {}
    }
    let has_code = |codes: &[&str]| codes.iter().any(|code| text.contains(&format!("<Code>{code}</Code>")));
    let status = status_of(&text);
    match status {
        Some(401 | 403) => of("StorePermissionError"),
        _ if has_code(&REFUSED) => of("StorePermissionError"),
        Some(404) => of("ObjectNotFoundError"),
        Some(passing) if PASSING_STATUS.contains(&passing) => of("StoreUnavailableError"),
        _ if has_code(&PASSING) => of("StoreUnavailableError"),
        None if NO_ANSWER.iter().any(|words| text.contains(words)) => of("StoreUnavailableError"),
        _ => of("StoreError"),
    }
}

/// The crate's message in the words of `tierlog.runtime.stores.reading.obstore_errors`: no provider, no XML, and what
/// was waited.
fn said(text: &str) -> String {
    let Some(asked) = Asked::of(text) else {
        let rest = match text.split_once(" error: ") {
            Some((head, rest)) if head.starts_with("Generic ") && !head["Generic ".len()..].contains(' ') => rest,
            _ => text,
        };
        return rest.replace("HTTP error: ", "no whole answer: ");
    };
    let waited = asked.tried.map_or_else(String::new, |tried| format!(" ({tried})"));
    format!("{}: {}{waited}", asked.verb, what_happened(asked.fault, asked.host))
}

/// A request, as the crate tells of it: `Error performing GET URL in 1.5s, after 4 retries, max_retries: 9,
/// retry_timeout: 80s  - what went wrong`.
struct Asked<'a> {
    verb: &'a str,
    host: &'a str,
    tried: Option<String>,
    fault: &'a str,
}

impl<'a> Asked<'a> {
    fn of(text: &'a str) -> Option<Self> {
        const BEGIN: &str = "Error performing ";
        text.match_indices(BEGIN).find_map(|(at, _)| {
            let (verb, rest) = text[at + BEGIN.len()..].split_once(' ')?;
            let (url, rest) = rest.split_once(" in ")?;
            let (spent, fault) = rest.split_once(" - ")?;
            if !verb.bytes().all(|byte| byte.is_ascii_uppercase()) || url.contains(' ') {
                return None; // what stands around it
            }
            let host = url.split_once("://").map_or(url, |(_, rest)| rest);
            let host = &host[..host.find(['/', '?']).unwrap_or(host.len())];
            let mut spent = spent.split(", ");
            let seconds = seconds_of(spent.next()?)?;
            let mut number =
                |head: &str, tail: &str| spent.next()?.strip_prefix(head)?.strip_suffix(tail)?.parse::<usize>().ok();
            let tried = number("after ", " retries").map(|retries| {
                let limit = number("max_retries: ", "").unwrap_or(usize::MAX);
                let more = if retries >= limit {
                    "store.max_retries allows more tries"
                } else {
                    "store.retry_timeout allows more time"
                };
                format!("tried {} times in {seconds:.1} s; {more}", retries + 1)
            });
            Some(Asked { verb, host, tried, fault: fault.trim_start() })
        })
    }
}

/// The seconds of a duration in its long form.
fn seconds_of(text: &str) -> Option<f64> {
    let units = [("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9), ("s", 1.0)];
    units.iter().find_map(|(unit, seconds)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * seconds))
}

fn what_happened(fault: &str, host: &str) -> String {
    if fault.starts_with("Received redirect without LOCATION") {
        return "the store redirects without a place: the bucket is in another region (store.region)".to_owned();
    }
    let answer = fault.strip_prefix("Server returned non-2xx status code: ");
    let Some((status, body)) = answer.and_then(|answer| answer.split_once(':')) else {
        return format!("no answer from {host}: {}", fault.strip_prefix("HTTP error: ").unwrap_or(fault));
    };
    let (status, body) = (status.trim(), body.trim());
    let (code, message) = (element(body, "Code"), element(body, "Message"));
    let told = match code {
        Some(code) => format!("status {} {code}: {}", &status[..status.len().min(3)], message.unwrap_or_default()),
        None if body.starts_with('<') => format!("status {status}"),
        None => format!("status {status}: {}", shortened(&body.split_whitespace().collect::<Vec<_>>().join(" "))),
    };
    told.trim_end_matches([':', ' ']).to_owned()
}

/// The text of an element of an error in XML.
fn element(body: &str, name: &str) -> Option<String> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    Some(shortened(&plain.iter().fold(text.to_owned(), |text, (entity, letter)| text.replace(entity, letter))))
}

fn shortened(text: &str) -> String {
    text.chars().take(MESSAGE_CHARACTERS_MAX).collect()
}

fn status_of(text: &str) -> Option<u16> {
    const WORDS: &str = "status code: ";
    text.match_indices(WORDS).find_map(|(at, _)| {
        let digits = text[at + WORDS.len()..].get(..3)?;
        if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> Error {
        Error::Generic { store: "S3", source: text.into() }
    }

    fn kind(text: &str) -> &'static str {
        translate(&generic(text), "s3://b/k").kind
    }

    #[test]
    fn each_status_has_the_kind_of_the_python_path() {
        assert_eq!(kind("Server returned non-2xx status code: 403 Forbidden: x"), "StorePermissionError");
        assert_eq!(kind("Server returned non-2xx status code: 404 Not Found: x"), "ObjectNotFoundError");
        assert_eq!(kind("Server returned non-2xx status code: 503 Service Unavailable: "), "StoreUnavailableError");
        assert_eq!(kind("Server returned non-2xx status code: 429 Too Many Requests: "), "StoreUnavailableError");
        assert_eq!(kind("Server returned non-2xx status code: 501 Not Implemented: "), "StoreError");
        assert_eq!(kind("status code: 400 Bad Request: <Code>ExpiredToken</Code>"), "StorePermissionError");
        assert_eq!(kind("status code: 400 Bad Request: <Code>RequestTimeout</Code>"), "StoreUnavailableError");
        assert_eq!(kind("HTTP error: error sending request"), "StoreUnavailableError");
        assert_eq!(kind("Requested 0..3, got 0..2"), "StoreError");
    }

    #[derive(Debug)]
    #[allow(dead_code)] // its long form is what is looked at
    struct Sent(&'static str);
    impl std::fmt::Display for Sent {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("HTTP error: error sending request")
        }
    }
    impl std::error::Error for Sent {}

    fn told(long: &'static str) -> Failure {
        translate(&Error::Generic { store: "S3", source: Box::new(Sent(long)) }, "s3://b/k")
    }

    #[test]
    fn why_no_connection_was_made_is_told() {
        let head = "s3://b/k: no whole answer: ";
        let refused = told("Os { code: 111, kind: ConnectionRefused } authorization: AWS4-HMAC-SHA256 secret");
        assert_eq!(refused, Failure { kind: "StoreUnavailableError", text: format!("{head}connection refused") });
        assert_eq!(told("\"dns error\", Custom").text, format!("{head}the host's name is not known"));
        assert_eq!(told("something else").text, format!("{head}error sending request"));
        assert!(
            !translate(&generic("HTTP error: request or response body error"), "x").text.contains("ConnectionReset")
        );
    }

    #[test]
    fn what_is_wrong_with_a_certificate_is_told() {
        let words = |long| {
            let found = told(long);
            assert_eq!(found.kind, "StorePermissionError");
            found.text.strip_prefix("s3://b/k: the server's certificate ").unwrap().to_owned()
        };
        assert_eq!(words("InvalidCertificate(ExpiredContext { time: 1 })"), "has expired");
        assert_eq!(words("InvalidCertificate(Other(OtherError(CaUsedAsEndEntity)))"), CERTIFICATE_FAULTS[6].1);
        assert_eq!(words("InvalidCertificate(BadEncoding)"), "is refused: BadEncoding");
        let names = "InvalidCertificate(NotValidForNameContext { presented: [\"DnsName(\\\"a.example\\\")\", \"IpAddress(::1)\"] })";
        assert_eq!(words(names), "is for other names than the endpoint's: a.example, ::1");
    }

    #[test]
    fn a_query_of_a_url_is_not_told() {
        let told = translate(&generic("GET https://h/k?sig=secret&x=1 in 2ms - why? no"), "az://c/k").text;
        assert_eq!(told, "az://c/k: GET https://h/k?… in 2ms - why? no");
    }

    #[test]
    fn the_code_of_an_answer_is_told() {
        let asked = "Error performing GET http://h:9/b/k?sig=1 in 1.5s";
        let waited = ", after 2 retries, max_retries: 9, retry_timeout: 1s ";
        let server = "Server returned non-2xx status code:";
        let words = |text: String| translate(&generic(&text), "s3://b/k").text;
        for head in ["<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", "<?xml version='1.0'?>", ""] {
            let body = format!("{head}<Error><Code>ExpiredToken</Code><Message>too &lt;old&gt;</Message></Error>");
            let text = format!("{asked} - {server} 400 Bad Request: {body}");
            assert_eq!(kind(&text), "StorePermissionError");
            assert_eq!(words(text), "s3://b/k: GET: status 400 ExpiredToken: too <old>");
        }
        let told = words(format!("{asked}{waited} - {server} 503 Service Unavailable: "));
        let more = "(tried 3 times in 1.5 s; store.retry_timeout allows more time)";
        assert_eq!(told, format!("s3://b/k: GET: status 503 Service Unavailable {more}"));
        let told =
            words(format!("{asked}, after 9 retries, max_retries: 9, retry_timeout: 1s  - {server} 500 X: a\n b"));
        assert_eq!(
            told,
            "s3://b/k: GET: status 500 X: a b (tried 10 times in 1.5 s; store.max_retries allows more tries)"
        );
        let told = words(format!("{asked} - HTTP error: error sending request"));
        assert_eq!(told, "s3://b/k: GET: no answer from h:9: error sending request");
    }

    #[test]
    fn a_missing_object_is_told_shortly() {
        let error = Error::NotFound { path: "k".into(), source: "<Code>NoSuchKey</Code>".into() };
        assert_eq!(translate(&error, "s3://b/k").text, "s3://b/k: not found");
    }

    #[test]
    fn a_range_behind_the_end_is_known() {
        assert!(is_behind_end(&generic("Wanted range starting at 9, but object was only 8 bytes long")));
        assert!(is_behind_end(&generic("status code: 416: <Code>InvalidRange</Code>")));
        assert!(!is_behind_end(&generic("HTTP error")));
    }
}
