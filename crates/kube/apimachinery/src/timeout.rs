//! The query parameter `timeout`, with Go's error texts.

use std::time::Duration;

use super::request::Query;
use super::status::StatusError;
use plimsoll_golang::GoDuration;

/// `timeout`, which any request may have. `None`: nothing that would limit it.
pub fn timeout(query: &Query) -> Result<Option<Duration>, StatusError> {
    let Some(text) = query.get("timeout") else {
        return Ok(None);
    };
    let limit = GoDuration::parse(text).map_err(|why| {
        StatusError::bad_request(format!(
            "invalid timeout specified in the request URL - {why}"
        ))
    })?;
    Ok(limit.positive().filter(|limit| !limit.is_zero()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_timeout() {
        for (text, expected) in [
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
            ("1h5", "time: missing unit in duration \"1h5\""),
            ("1..2s", "time: missing unit in duration \"1..2s\""),
            ("s", "time: invalid duration \"s\""),
            ("99999999999h", "time: invalid duration \"99999999999h\""),
        ] {
            let query = Query::parse(&format!("timeout={text}"));
            let refused = timeout(&query).unwrap_err();
            let expected = format!("invalid timeout specified in the request URL - {expected}");
            assert_eq!(refused.message, expected);
        }
    }

    #[test]
    fn timeouts() {
        for (text, expected) in [
            ("1s", Some(Some(Duration::from_secs(1)))),
            ("1h2m3.5s", Some(Some(Duration::from_millis(3_723_500)))),
            ("1ns", Some(Some(Duration::from_nanos(1)))),
            ("0", Some(None)),
            ("-1s", Some(None)),
            ("", Some(None)),
            ("1", None),
            ("x", None),
            ("s", None),
            ("1.2.3s", None),
        ] {
            let query = Query::parse(&format!("timeout={text}"));
            let expected = expected.ok_or(());
            assert_eq!(timeout(&query).map_err(drop), expected, "{text}");
        }
    }
}
