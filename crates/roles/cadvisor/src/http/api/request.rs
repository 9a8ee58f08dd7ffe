//! The body of a version 1 request: how many samples, from when to when.

use std::fmt;

use crate::rest::Range;
use plimsoll_golang::time::{self, Layout};
use plimsoll_host::Timestamp;
use serde::Deserializer as _;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::syntax;

const TYPE: &str = "model.ContainerInfoRequest";
const DEFAULT_SAMPLES: i64 = 60;

/// No body, and `null`, ask for the newest sixty. Keys count whatever their case; unknown keys and what comes after
/// the object do not.
pub fn parse(body: &[u8]) -> Result<Range, String> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return range(Wanted::default());
    }
    let refused = |why: String| format!("unable to decode the json value: {why}");
    // The whole value must be JSON before anything in it counts.
    if let Some(fault) = syntax::fault(body) {
        return Err(refused(fault));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    match deserializer.deserialize_any(WantedVisitor) {
        Ok(wanted) => range(wanted),
        Err(error) => Err(refused(explain(&error))),
    }
}

fn range(wanted: Wanted) -> Result<Range, String> {
    let count = wanted.num_stats.unwrap_or(DEFAULT_SAMPLES);
    if count < -1 {
        // The original dies of this.
        return Err(format!(
            "invalid 'num_stats': only -1 and larger values allowed, not {count}"
        ));
    }
    Ok(Range {
        start: wanted.start,
        end: wanted.end,
        most: usize::try_from(count).ok(),
    })
}

#[derive(Debug, Default)]
struct Wanted {
    num_stats: Option<i64>,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

struct WantedVisitor;

fn not_an_object<E: serde::de::Error>(kind: &str) -> E {
    E::custom(format_args!(
        "json: cannot unmarshal {kind} into Go value of type {TYPE}"
    ))
}

impl<'de> Visitor<'de> for WantedVisitor {
    type Value = Wanted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Wanted, E> {
        Ok(Wanted::default())
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Wanted, E> {
        Err(not_an_object("bool"))
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<Wanted, E> {
        Err(not_an_object("number"))
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Wanted, E> {
        Err(not_an_object("number"))
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Wanted, E> {
        Err(not_an_object("number"))
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Wanted, E> {
        Err(not_an_object("string"))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, _: A) -> Result<Wanted, A::Error> {
        Err(not_an_object("array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Wanted, A::Error> {
        let mut wanted = Wanted::default();
        // A value of the wrong type is told of at the end; one that is no time ends it at once.
        let mut wrong = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.to_ascii_lowercase().as_str() {
                "num_stats" => {
                    let value = map.next_value::<Box<RawValue>>()?;
                    match whole(value.get()) {
                        Ok(None) => {}
                        Ok(count) => wanted.num_stats = count,
                        Err(error) => wrong = wrong.or(Some(error)),
                    }
                }
                "start" => time(map.next_value()?, &mut wanted.start).map_err(A::Error::custom)?,
                "end" => time(map.next_value()?, &mut wanted.end).map_err(A::Error::custom)?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match wrong {
            Some(error) => Err(A::Error::custom(error)),
            None => Ok(wanted),
        }
    }
}

/// `None`: `null`, which changes nothing. `text` is one JSON value.
fn whole(text: &str) -> Result<Option<i64>, String> {
    let kind = match text.as_bytes().first() {
        Some(b'n') => return Ok(None),
        Some(b'"') => "string".to_owned(),
        Some(b'[') => "array".to_owned(),
        Some(b'{') => "object".to_owned(),
        Some(b't' | b'f') => "bool".to_owned(),
        _ => match text.parse() {
            Ok(number) => return Ok(Some(number)),
            Err(_) => format!("number {text}"),
        },
    };
    Err(format!(
        "json: cannot unmarshal {kind} into Go struct field ContainerInfoRequest.num_stats of type int"
    ))
}

/// The year one is the original's way of saying "whenever". Escapes within the text are not undone, as there.
fn time(value: &RawValue, out: &mut Option<Timestamp>) -> Result<(), String> {
    if value.get() == "null" {
        return Ok(());
    }
    let text = value.get().strip_prefix('"');
    let Some(text) = text.and_then(|text| text.strip_suffix('"')) else {
        return Err("Time.UnmarshalJSON: input is not a JSON string".to_owned());
    };
    *out = match text {
        "0001-01-01T00:00:00Z" => None,
        text => Some(moment(text)?),
    };
    Ok(())
}

/// A moment beyond what 64 bits of nanoseconds can tell is the end of what they can tell.
pub fn moment(text: &str) -> Result<Timestamp, String> {
    let at = time::parse(text, Layout::Seconds)?;
    let nanos = at
        .as_nanosecond()
        .clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    Ok(Timestamp(i64::try_from(nanos).unwrap_or(i64::MAX)))
}

/// What was said about a value, without the position that serde adds at the end.
fn explain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(body: &str, expected: Result<Option<usize>, &str>) {
        let found = parse(body.as_bytes()).map(|range| range.most);
        assert_eq!(found, expected.map_err(str::to_owned), "{body}");
    }

    #[test]
    fn as_the_original_reads_them() {
        check("", Ok(Some(60)));
        check(" \n", Ok(Some(60)));
        check("null", Ok(Some(60)));
        check("{}", Ok(Some(60)));
        check(r#"{"num_stats":null}"#, Ok(Some(60)));
        check(r#"{"num_stats":1}"#, Ok(Some(1)));
        check(r#"{"NUM_STATS":2}"#, Ok(Some(2)));
        check(r#"{"num_stats":0}"#, Ok(Some(0)));
        check(r#"{"num_stats":-1}"#, Ok(None));
        check(r#"{"num_stats":1,"bogus":{"a":[2]}}"#, Ok(Some(1)));
        check(r#"{"num_stats":1} trailing"#, Ok(Some(1)));
    }

    #[test]
    fn refusals() {
        let decode = |text: &str| format!("unable to decode the json value: {text}");
        for (body, expected) in [
            (
                "[]",
                "json: cannot unmarshal array into Go value of type model.ContainerInfoRequest",
            ),
            (
                "\"x\"",
                "json: cannot unmarshal string into Go value of type model.ContainerInfoRequest",
            ),
            (
                "7",
                "json: cannot unmarshal number into Go value of type model.ContainerInfoRequest",
            ),
            ("{", "unexpected EOF"),
            (
                r#"{"num_stats":"3",}"#,
                "invalid character '}' looking for beginning of object key string",
            ),
            ("x", "invalid character 'x' looking for beginning of value"),
            (
                r#"{"num_stats":"3"}"#,
                "json: cannot unmarshal string into Go struct field ContainerInfoRequest.num_stats of type int",
            ),
            (
                r#"{"num_stats":1.5}"#,
                "json: cannot unmarshal number 1.5 into Go struct field ContainerInfoRequest.num_stats of type int",
            ),
            (
                r#"{"num_stats":99999999999999999999}"#,
                "json: cannot unmarshal number 99999999999999999999 into Go struct field ContainerInfoRequest.num_stats of type int",
            ),
            (
                r#"{"num_stats":"3","start":5}"#,
                "Time.UnmarshalJSON: input is not a JSON string",
            ),
            (
                r#"{"start":"2026-11-15"}"#,
                r#"parsing time "2026-11-15" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
            (
                r#"{"start":"bad"}"#,
                r#"parsing time "bad" as "2006-01-02T15:04:05Z07:00": cannot parse "bad" as "2006""#,
            ),
        ] {
            check(body, Err(&decode(expected)));
        }
        check(
            r#"{"num_stats":-2}"#,
            Err("invalid 'num_stats': only -1 and larger values allowed, not -2"),
        );
    }

    #[test]
    fn spans() {
        let body = r#"{"start":"2026-11-15T21:00:00Z","end":"2099-01-02T00:00:00+01:00"}"#;
        let range = parse(body.as_bytes()).unwrap();
        assert_eq!(range.start, Some(Timestamp::from_secs(1_794_776_400)));
        assert!(range.end > range.start);
        let whenever = br#"{"start":"0001-01-01T00:00:00Z"}"#;
        assert_eq!(parse(whenever).unwrap().start, None);
    }

    proptest! {
        #[test]
        fn nothing_panics(body: Vec<u8>) {
            let _ = parse(&body);
        }

        #[test]
        fn nothing_panics_on_json(body in r#"[\{\}\[\]",:0-9a-z_ \-\.\\]{0,60}"#) {
            let _ = parse(body.as_bytes());
        }
    }
}
