//! What an error of `object_store` means for a caller: the same kinds and words as `tierlog.runtime.remote_store`,
//! so that a user reads one message whichever path met the error.

use object_store::Error;

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
/// Without a status no answer came, or it broke off.
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
    let text = short_text(error);
    let told = format!("{place}: {text}");
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

    #[test]
    fn a_query_of_a_url_is_not_told() {
        let told = translate(&generic("GET https://h/k?sig=secret&x=1 in 2ms - why? no"), "az://c/k").text;
        assert_eq!(told, "az://c/k: Generic S3 error: GET https://h/k?… in 2ms - why? no");
    }

    #[test]
    fn the_code_of_an_answer_is_told() {
        for head in ["<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", "<?xml version='1.0'?>", ""] {
            let text = format!("status code: 400 Bad Request: {head}<Error><Code>ExpiredToken</Code></Error>");
            assert_eq!(kind(&text), "StorePermissionError");
            assert!(translate(&generic(&text), "s3://b/k").text.ends_with(&text));
        }
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
