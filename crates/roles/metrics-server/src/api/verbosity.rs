//! `/debug/flags/v`: how much is logged, changed while it runs.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use http::header::{self, HeaderValue};
use plimsoll_apimachinery::answer;
use plimsoll_apimachinery::answer::Answer;
use plimsoll_golang::strconv::quote;
use plimsoll_serving::RequestBody;

/// Longer than any number.
const LONGEST: usize = 1024;

/// Sets how much is logged, in klog's numbers. Clones do the same.
#[derive(Clone)]
pub struct Verbosity(Arc<dyn Fn(u32) + Send + Sync>);

impl Verbosity {
    pub fn new(set: impl Fn(u32) + Send + Sync + 'static) -> Self {
        Self(Arc::new(set))
    }
}

impl fmt::Debug for Verbosity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verbosity")
    }
}

pub async fn set(verbosity: Option<&Verbosity>, sent: RequestBody) -> Answer {
    let text = match plimsoll_serving::read(sent, LONGEST).await {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            let text = format!("error reading request body: {error}");
            return answer(StatusCode::BAD_REQUEST, &text);
        }
    };
    let level = match parsed(&text) {
        Ok(level) => level,
        Err(why) => return answer(StatusCode::BAD_REQUEST, &why),
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
fn parsed(text: &str) -> Result<u32, String> {
    let why = match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        true => "value out of range",
        false => "invalid syntax",
    };
    let refused = |_| format!("strconv.ParseUint: parsing {}: {why}", quote(text));
    match why {
        "invalid syntax" => Err(refused(())),
        _ => text.parse().map_err(|_| refused(())),
    }
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
        let wrong = |text| parsed(text).unwrap_err();
        for text in ["", "+4", "-1", "4 "] {
            assert_eq!(
                wrong(text),
                format!("strconv.ParseUint: parsing \"{text}\": invalid syntax")
            );
        }
        assert_eq!(
            wrong("99999999999"),
            "strconv.ParseUint: parsing \"99999999999\": value out of range"
        );
    }
}
