//! What the fields of a policy are. A name that means nothing is passed over, as the original does, so that what is
//! written is what the definitions of either keep; a value of the wrong kind is refused, with its place.

use plimsoll_api::quantity::Quantity;
use serde_json::{Map, Value};

use crate::slo::Section;

#[derive(Debug)]
pub enum Shape {
    Switch,
    /// From and up to, both included.
    Number(i64, i64),
    OneOf(&'static [&'static str]),
    Text,
    Quantity,
    NumberOrText,
    /// Names of whatever kind, each on or off.
    Switches,
    Fields(&'static [(&'static str, Shape)]),
    List(&'static Shape),
    /// Whatever it is.
    Any,
}

use Shape::{Any, Fields, List, Number, NumberOrText, OneOf, Switch, Switches, Text};

const PERCENT: Shape = Number(0, 100);
const BIT: Shape = Number(0, 1);
const COUNT: Shape = Number(0, i64::MAX);
const WHOLE: Shape = Number(i64::MIN, i64::MAX);

const THRESHOLD: Shape = Fields(&[
    ("enable", Switch),
    ("cpuSuppressThresholdPercent", PERCENT),
    ("cpuSuppressMinPercent", PERCENT),
    ("cpuSuppressPolicy", OneOf(&["cpuset", "cfsQuota"])),
    ("memoryEvictThresholdPercent", PERCENT),
    ("memoryEvictLowerPercent", PERCENT),
    ("memoryAllocatableEvictThresholdPercent", COUNT),
    ("memoryAllocatableEvictLowerPercent", COUNT),
    ("cpuEvictBESatisfactionUpperPercent", PERCENT),
    ("cpuEvictBESatisfactionLowerPercent", PERCENT),
    ("cpuEvictBEUsageThresholdPercent", PERCENT),
    ("cpuEvictTimeWindowSeconds", Number(1, i64::MAX)),
    ("cpuEvictThresholdPercent", PERCENT),
    ("cpuEvictLowerPercent", PERCENT),
    ("cpuAllocatableEvictThresholdPercent", COUNT),
    ("cpuAllocatableEvictLowerPercent", COUNT),
    (
        "cpuEvictPolicy",
        OneOf(&["evictByRealLimit", "evictByAllocatable"]),
    ),
    (
        "evictEnabledPriorityThreshold",
        Number(i32::MIN as i64, i32::MAX as i64),
    ),
    (
        "allocatableEvictPriorityThreshold",
        Number(i32::MIN as i64, 7999),
    ),
]);

const BURST: Shape = Fields(&[
    (
        "policy",
        OneOf(&["none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly"]),
    ),
    ("cpuBurstPercent", Number(1, 10_000)),
    ("cfsQuotaBurstPercent", Number(100, i64::MAX)),
    ("cfsQuotaBurstPeriodSeconds", Number(-1, i64::MAX)),
    ("sharePoolThresholdPercent", PERCENT),
]);

const SYSTEM: Shape = Fields(&[
    ("minFreeKbytesFactor", Number(1, i64::MAX)),
    ("watermarkScaleFactor", Number(1, 400)),
    ("memcgReapBackGround", BIT),
    ("schedGroupIdentityEnabled", BIT),
    ("schedIdleSaverWmark", COUNT),
    ("schedFeatures", Switches),
    ("totalNetworkBandwidth", Shape::Quantity),
    ("pageCacheLimitEnabled", Any),
]);

const BLOCK: Shape = Fields(&[
    ("name", Text),
    ("type", Text),
    (
        "ioCfg",
        Fields(&[
            ("readIOPS", WHOLE),
            ("writeIOPS", WHOLE),
            ("readBPS", WHOLE),
            ("writeBPS", WHOLE),
            ("ioWeightPercent", WHOLE),
            ("readLatency", WHOLE),
            ("writeLatency", WHOLE),
            ("readLatencyPercent", WHOLE),
            ("writeLatencyPercent", WHOLE),
            ("enableUserModel", Switch),
            ("modelReadBPS", WHOLE),
            ("modelWriteBPS", WHOLE),
            ("modelReadSeqIOPS", WHOLE),
            ("modelWriteSeqIOPS", WHOLE),
            ("modelReadRandIOPS", WHOLE),
            ("modelWriteRandIOPS", WHOLE),
        ]),
    ),
]);

const CLASS: Shape = Fields(&[
    (
        "cpuQOS",
        Fields(&[
            ("enable", Switch),
            ("groupIdentity", Number(-1, 2)),
            ("schedIdle", BIT),
            ("coreExpeller", Switch),
        ]),
    ),
    (
        "memoryQOS",
        Fields(&[
            ("enable", Switch),
            ("minLimitPercent", PERCENT),
            ("lowLimitPercent", PERCENT),
            ("throttlingPercent", PERCENT),
            ("wmarkRatio", PERCENT),
            ("wmarkScalePermill", Number(1, 1000)),
            ("wmarkMinAdj", Number(-25, 50)),
            ("priorityEnable", BIT),
            ("priority", Number(0, 12)),
            ("oomKillGroup", BIT),
            ("pageCacheEnable", Any),
            ("pageCacheLimitPercent", Any),
            ("pageCacheLimitSize", Any),
            ("pageCacheReclaimSync", Any),
        ]),
    ),
    (
        "blkioQOS",
        Fields(&[("enable", Switch), ("blocks", List(&BLOCK))]),
    ),
    (
        "resctrlQOS",
        Fields(&[
            ("enable", Switch),
            ("catRangeStartPercent", PERCENT),
            ("catRangeEndPercent", PERCENT),
            ("mbaPercent", PERCENT),
        ]),
    ),
    (
        "networkQOS",
        Fields(&[
            ("enable", Switch),
            ("ingressRequest", NumberOrText),
            ("ingressLimit", NumberOrText),
            ("egressRequest", NumberOrText),
            ("egressLimit", NumberOrText),
        ]),
    ),
]);

const QOS: Shape = Fields(&[
    (
        "policies",
        Fields(&[
            ("cpuPolicy", OneOf(&["groupIdentity", "coreSched"])),
            ("netQOSPolicy", OneOf(&["tc", "terway-qos"])),
        ]),
    ),
    ("lsrClass", CLASS),
    ("lsClass", CLASS),
    ("beClass", CLASS),
    ("systemClass", CLASS),
    ("cgroupRoot", CLASS),
]);

/// A program of the host. What its words may be is looked at elsewhere.
pub const APPLICATION: Shape = Fields(&[
    ("name", Text),
    ("priority", Any),
    ("qos", Any),
    (
        "cgroupPath",
        Fields(&[("base", Any), ("parentDir", Text), ("relativePath", Text)]),
    ),
    ("strategy", Fields(&[])),
]);

pub fn of(section: Section) -> &'static Shape {
    match section {
        Section::Threshold => &THRESHOLD,
        Section::Qos => &QOS,
        Section::Burst => &BURST,
        Section::System => &SYSTEM,
    }
}

impl Shape {
    /// The value with what is known of it. A complaint begins with the field's place.
    pub fn take(&self, value: &Value) -> Result<Value, String> {
        if value.is_null() {
            return Ok(Value::Null);
        }
        let kind = match (self, value) {
            (Any, _)
            | (Switch, Value::Bool(_))
            | (Text, Value::String(_))
            | (NumberOrText, Value::String(_)) => return Ok(value.clone()),
            (Fields(known), Value::Object(fields)) => return taken(known, fields),
            (List(shape), Value::Array(values)) => {
                let taken = values.iter().enumerate().map(|(position, value)| {
                    let taken = shape.take(value);
                    taken.map_err(|problem| format!("[{position}]{problem}"))
                });
                return taken.collect::<Result<Vec<_>, _>>().map(Value::Array);
            }
            (Switches, Value::Object(fields)) if fields.values().all(Value::is_boolean) => {
                return Ok(value.clone());
            }
            (Number(from, to), value) => {
                let within = |number: i64| (*from..=*to).contains(&number);
                if value.as_i64().is_some_and(within) {
                    return Ok(value.clone());
                }
                match (*from, *to) {
                    (i64::MIN, i64::MAX) => "a whole number".to_owned(),
                    (from, i64::MAX) => format!("a whole number of at least {from}"),
                    (from, to) => format!("a whole number between {from} and {to}"),
                }
            }
            (NumberOrText, value) if value.is_i64() => return Ok(value.clone()),
            (OneOf(words), value) => match value.as_str() {
                Some(word) if words.contains(&word) => return Ok(value.clone()),
                _ => format!("one of {}", words.join(", ")),
            },
            (Shape::Quantity, Value::String(_) | Value::Number(_)) => {
                let text = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                match text.parse::<Quantity>() {
                    Ok(quantity) => return Ok(quantity.to_string().into()),
                    Err(_) => "a quantity like 10G".to_owned(),
                }
            }
            (Switch, _) => "true or false".to_owned(),
            (Text, _) => "a text".to_owned(),
            (Shape::Quantity, _) => "a quantity like 10G".to_owned(),
            (NumberOrText, _) => "a whole number or a text".to_owned(),
            (Switches, _) => "an object of names that are true or false".to_owned(),
            (Fields(_), _) => "an object".to_owned(),
            (List(_), _) => "a list".to_owned(),
        };
        Err(format!(": must be {kind}, and is {value}"))
    }
}

fn taken(known: &[(&str, Shape)], fields: &Map<String, Value>) -> Result<Value, String> {
    let mut taken = Map::new();
    for (name, shape) in known {
        // Nothing is said by `null`.
        if let Some(value) = fields.get(*name).filter(|value| !value.is_null()) {
            let value = shape.take(value);
            let value = value.map_err(|problem| format!(".{name}{problem}"))?;
            taken.insert((*name).to_owned(), value);
        }
    }
    Ok(taken.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_means_nothing_is_passed_over() {
        let stated = json!({
            "beClass": {"cpuQOS": {"enable": true, "enabled": true}, "diskQOS": {}},
            "hugeClass": {"enable": true},
            "lsClass": null,
        });
        assert_eq!(
            of(Section::Qos).take(&stated).unwrap(),
            json!({"beClass": {"cpuQOS": {"enable": true}}})
        );
        let stated =
            json!({"totalNetworkBandwidth": 10_000_000_000_i64, "schedFeatures": {"X": true}});
        assert_eq!(
            of(Section::System).take(&stated).unwrap(),
            json!({"totalNetworkBandwidth": "10G", "schedFeatures": {"X": true}})
        );
    }

    #[test]
    fn what_is_of_the_wrong_kind_is_refused() {
        let block = |cfg: Value| json!({"beClass": {"blkioQOS": {"blocks": [{"ioCfg": cfg}]}}});
        for (section, stated, complaint) in [
            (
                Section::Qos,
                json!({"beClass": 5}),
                ".beClass: must be an object, and is 5",
            ),
            (
                Section::Qos,
                block(json!({"readIOPS": "many"})),
                ".beClass.blkioQOS.blocks[0].ioCfg.readIOPS: must be a whole number, and is \"many\"",
            ),
            (
                Section::Qos,
                json!({"lsClass": {"blkioQOS": {"blocks": {}}}}),
                ".lsClass.blkioQOS.blocks: must be a list, and is {}",
            ),
            (
                Section::Qos,
                json!({"lsClass": {"networkQOS": {"egressLimit": 1.5}}}),
                ".lsClass.networkQOS.egressLimit: must be a whole number or a text, and is 1.5",
            ),
            (
                Section::System,
                json!({"totalNetworkBandwidth": "wide"}),
                ".totalNetworkBandwidth: must be a quantity like 10G, and is \"wide\"",
            ),
            (
                Section::System,
                json!({"schedFeatures": {"X": 1}}),
                ".schedFeatures: must be an object of names that are true or false, and is {\"X\":1}",
            ),
            (
                Section::Threshold,
                json!({"enable": "yes"}),
                ".enable: must be true or false, and is \"yes\"",
            ),
        ] {
            assert_eq!(of(section).take(&stated).unwrap_err(), complaint);
        }
        let beyond = json!({"memoryAllocatableEvictThresholdPercent": 120});
        assert!(of(Section::Threshold).take(&beyond).is_ok());
    }
}
