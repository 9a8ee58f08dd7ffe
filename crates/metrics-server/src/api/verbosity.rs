//! `/debug/flags/v`: how much is logged, changed while it runs.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::header::{self, HeaderValue};
use plimsoll_ground::rest::answer::{self, Answer};
use plimsoll_ground::rest::field::quote;
use plimsoll_ground::serve::{self, Sent};

/// Longer than any number.
const LONGEST: usize = 1024;

/// Sets how much is logged, in klog's numbers. Clones do the same.
#[derive(Clone)]
pub struct Verbosity(Arc<dyn Fn(i32) + Send + Sync>);

impl Verbosity {
    pub fn new(set: impl Fn(i32) + Send + Sync + 'static) -> Self {
        Self(Arc::new(set))
    }
}

impl fmt::Debug for Verbosity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verbosity")
    }
}

pub async fn set(verbosity: Option<&Verbosity>, sent: Sent) -> Answer {
    let text = match serve::read(sent, LONGEST).await {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            let text = format!("error reading request body: {error}");
            return answer(StatusCode::BAD_REQUEST, &text);
        }
    };
    let level = match parsed(&text) {
        Ok(level) => level,
        Err(why) => {
            let text = format!("failed set klog.logging.verbosity {text}: {why}");
            return answer(StatusCode::BAD_REQUEST, &text);
        }
    };
    let Some(Verbosity(set)) = verbosity else {
        let text = "the log belongs to a program that this server is a part of";
        return answer(StatusCode::NOT_IMPLEMENTED, text);
    };
    set(level);
    let text = format!("successfully set klog.logging.verbosity to {text}");
    answer(StatusCode::OK, &text)
}

/// In Go's words where it is no number.
fn parsed(text: &str) -> Result<i32, String> {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let shown = quote(text);
    text.parse().map_err(|error: std::num::ParseIntError| {
        let why = match error.kind() {
            NegOverflow | PosOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.ParseInt: parsing {shown}: {why}")
    })
}

/// A line of plain text.
pub fn answer(code: StatusCode, text: &str) -> Answer {
    let mut response = answer::text(code, format!("{text}\n"));
    let plain = HeaderValue::from_static("text/plain");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_go_reads_them() {
        assert_eq!(parsed("4"), Ok(4));
        assert_eq!(parsed("+4"), Ok(4));
        assert_eq!(parsed("-1"), Ok(-1));
        let wrong = |text| parsed(text).unwrap_err();
        assert_eq!(
            wrong("x\n"),
            "strconv.ParseInt: parsing \"x\\n\": invalid syntax"
        );
        assert_eq!(
            wrong("99999999999"),
            "strconv.ParseInt: parsing \"99999999999\": value out of range"
        );
        assert_eq!(wrong(""), "strconv.ParseInt: parsing \"\": invalid syntax");
    }
}
