//! Times in JSON as Go writes them: with as many decimals as they need. The rest of Go's JSON is in `plimsoll_golang`.

pub use plimsoll_golang::json::{to_vec, write};
use plimsoll_host::Timestamp;
use serde::{Serialize, Serializer};

/// A moment as RFC 3339 with nanoseconds; the original's zero time where it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Option<Timestamp>);

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        Self(Some(at))
    }
}

const UNKNOWN_TIME: &str = "0001-01-01T00:00:00Z";

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.and_then(moment) {
            Some(at) => serializer.collect_str(&at),
            None => serializer.serialize_str(UNKNOWN_TIME),
        }
    }
}

#[cfg(test)]
impl<'de> serde::Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let at: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(i64::try_from(at.as_nanosecond()).ok().map(Timestamp)))
    }
}

/// The same, cut to whole seconds: how Kubernetes writes times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds(pub Option<Timestamp>);

impl From<Timestamp> for Seconds {
    fn from(at: Timestamp) -> Self {
        Self(Some(at))
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let whole = self.0.map(|at| Timestamp::from_secs(at.secs()));
        match whole.and_then(moment) {
            Some(at) => serializer.collect_str(&at),
            None => serializer.serialize_none(),
        }
    }
}

fn moment(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_nanosecond(i128::from(at.nanos())).ok()
}

/// For `skip_serializing_if`.
pub(crate) fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<T: Serialize + ?Sized>(value: &T) -> String {
        String::from_utf8(to_vec(value).unwrap()).unwrap()
    }

    #[test]
    fn times() {
        let at = Timestamp(1_794_778_428_542_205_520);
        assert_eq!(text(&Time::from(at)), r#""2026-11-15T21:33:48.54220552Z""#);
        assert_eq!(
            text(&Time::from(Timestamp::from_secs(1_794_778_428))),
            r#""2026-11-15T21:33:48Z""#
        );
        assert_eq!(text(&Time(None)), r#""0001-01-01T00:00:00Z""#);
        assert_eq!(text(&Seconds::from(at)), r#""2026-11-15T21:33:48Z""#);
        assert_eq!(text(&Seconds(None)), "null");
    }
}
