//! Values, compared by meaning and not by the text of a file.

use std::fmt;

use plimsoll_api::cpus::CpuSet;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Value {
    /// CPU shares, 2 to 262144, whatever unit the kernel has.
    Shares(u64),
    /// What a kernel with cgroup v2 has, 1 to 10000. Plans want shares; only found values and bases are weights.
    Weight(u64),
    Quota {
        /// `None`: no limit.
        quota_us: Option<u64>,
        /// `None`: whatever it is.
        period_us: Option<u64>,
    },
    /// A size that may be without limit (`None`).
    Bytes(Option<u64>),
    Number(i64),
    Switch(bool),
    Cpus(#[serde(with = "cpu_list")] CpuSet),
    /// Settings of one device, or one line of a schemata file, in the kernel's own form.
    Line(Box<str>),
    /// Thread or process ids to add.
    Ids(Box<[u32]>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shares(shares) => write!(f, "{shares} shares"),
            Self::Weight(weight) => write!(f, "weight {weight}"),
            Self::Quota {
                quota_us,
                period_us,
            } => {
                match (quota_us, period_us) {
                    (Some(quota), Some(period)) => write!(f, "{quota}us per {period}us"),
                    (Some(quota), None) => write!(f, "{quota}us"),
                    // How often nothing is limited says nothing.
                    (None, _) => f.write_str("no limit"),
                }
            }
            Self::Bytes(Some(bytes)) => write!(f, "{bytes} bytes"),
            Self::Bytes(None) => f.write_str("no limit"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Switch(on) => f.write_str(if *on { "on" } else { "off" }),
            Self::Cpus(cpus) if cpus.is_empty() => f.write_str("no CPUs"),
            Self::Cpus(cpus) => write!(f, "CPUs {cpus}"),
            Self::Line(line) => f.write_str(line),
            Self::Ids(ids) => write!(f, "{} ids", ids.len()),
        }
    }
}

/// CPU sets as people write them: `0-3,8`.
mod cpu_list {
    use super::CpuSet;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(cpus: &CpuSet, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(cpus)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<CpuSet, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_back_as_written() {
        for value in [
            Value::Shares(1024),
            Value::Weight(39),
            Value::Quota {
                quota_us: None,
                period_us: Some(100_000),
            },
            Value::Bytes(None),
            Value::Bytes(Some(u64::MAX)),
            Value::Number(-1),
            Value::Switch(true),
            Value::Cpus([0, 1, 2, 8].into_iter().collect()),
            Value::Line("8:0 rbps=1".into()),
            Value::Ids([1, 2].into()),
        ] {
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(
                serde_json::from_str::<Value>(&text).unwrap(),
                value,
                "{text}"
            );
        }
        let text = serde_json::to_string(&Value::Cpus([0, 1, 8].into_iter().collect())).unwrap();
        assert_eq!(text, r#"{"cpus":"0-1,8"}"#);
    }

    #[test]
    fn values_are_said_in_words() {
        let quota = |quota_us, period_us| Value::Quota {
            quota_us,
            period_us,
        };
        assert_eq!(
            quota(Some(5000), Some(100_000)).to_string(),
            "5000us per 100000us"
        );
        assert_eq!(quota(None, None).to_string(), "no limit");
        assert_eq!(Value::Cpus(CpuSet::default()).to_string(), "no CPUs");
    }
}
