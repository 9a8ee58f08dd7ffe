//! Selectors of devices, in CEL.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use cel::Value;
use cel::objects::{Key, Map};
use plimsoll_expressions::values::{Amount, Version};
use plimsoll_expressions::{Expression, Meter, devices, type_name};

use super::devices::{Attribute, Device};

/// An expression about devices. It is compiled when it is first asked about one, and then known.
#[derive(Debug, Clone)]
pub struct DeviceSelector {
    source: Box<str>,
    program: Arc<OnceLock<Result<Expression, String>>>,
}

impl PartialEq for DeviceSelector {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for DeviceSelector {}

impl From<&str> for DeviceSelector {
    fn from(source: &str) -> Self {
        Self {
            source: source.into(),
            program: Arc::default(),
        }
    }
}

impl DeviceSelector {
    /// Whether it holds for a device. The error is in the words of CEL. The work is taken from `work_left`; once that is
    /// zero, the answer means nothing.
    pub fn matches(
        &self,
        driver: &str,
        device: &Device,
        work_left: &mut u64,
    ) -> Result<bool, String> {
        let compiled = self.program.get_or_init(|| {
            Expression::compile_of_device(&self.source).map(|(compiled, _)| compiled)
        });
        let program = compiled
            .as_ref()
            .map_err(|words| format!("CEL compile error: {words}"))?;
        let variables = [("device", value(&self.source, driver, device))];
        let mut meter = Meter::new(devices::COST).at_most(*work_left);
        let result = program.evaluate(&variables, &mut meter);
        *work_left = work_left.saturating_sub(meter.steps());
        match result {
            Ok(Value::Bool(holds)) => Ok(holds),
            Ok(other) => Err(format!(
                "CEL runtime error: CEL result of type {} could not be converted to bool: {}",
                type_name(&other),
                unconverted(&other)
            )),
            Err(failure) => Err(format!("CEL runtime error: {}", failure.in_words())),
        }
    }
}

/// Why a value is not taken for a yes or no. Attributes are texts, numbers, versions or just that.
fn unconverted(value: &Value) -> String {
    match value {
        Value::String(_) => "unsupported native conversion from string to 'bool'".to_owned(),
        Value::Int(_) => "unsupported type conversion from 'int' to bool".to_owned(),
        other => {
            let name = type_name(other).trim_start_matches("kubernetes.");
            format!("type conversion error from '{name}' to 'bool'")
        }
    }
}

fn value(expression: &str, driver: &str, device: &Device) -> Value {
    let mut attributes: Domains = Domains::default();
    let mut capacity: Domains = Domains::default();
    // A domain that is asked for is there, though there may be nothing in it.
    for domain in quoted(expression) {
        attributes.entry(domain.to_owned()).or_default();
        capacity.entry(domain.to_owned()).or_default();
    }
    for (name, attribute) in &device.attributes {
        let value = match attribute {
            Attribute::Int(number) => Value::Int(*number),
            Attribute::Bool(flag) => Value::Bool(*flag),
            Attribute::Text(text) => Value::String(Arc::new(text.to_string())),
            Attribute::Version(text) => Version::parse(text).map_or(Value::Null, Version::value),
        };
        insert(&mut attributes, name, driver, value);
    }
    for (name, amount) in &device.capacity {
        insert(
            &mut capacity,
            name,
            driver,
            Amount(amount.value.clone()).value(),
        );
    }
    map([
        ("driver", Value::String(Arc::new(driver.to_owned()))),
        ("allowMultipleAllocations", Value::Bool(device.is_shared)),
        ("attributes", nested(attributes)),
        ("capacity", nested(capacity)),
    ])
}

type Domains = HashMap<String, HashMap<Key, Value>>;

/// A name without a domain belongs to the driver's.
fn insert(domains: &mut Domains, name: &str, driver: &str, value: Value) {
    let (domain, id) = name.split_once('/').unwrap_or((driver, name));
    let domain = domains.entry(domain.to_owned()).or_default();
    domain.insert(Key::from(id.to_owned()), value);
}

fn nested(domains: Domains) -> Value {
    let map: HashMap<Key, Value> = domains
        .into_iter()
        .map(|(domain, inner)| {
            (
                Key::from(domain),
                Value::Map(Map {
                    map: Arc::new(inner),
                }),
            )
        })
        .collect();
    Value::Map(Map { map: Arc::new(map) })
}

fn map<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let map = fields.map(|(name, value)| (Key::from(name.to_owned()), value));
    Value::Map(Map {
        map: Arc::new(HashMap::from(map)),
    })
}

/// The strings that stand in an expression.
fn quoted(expression: &str) -> impl Iterator<Item = &str> {
    let parts = expression.split(['"', '\'']);
    parts.skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Names, decode};

    #[test]
    fn expressions_about_devices() {
        let slice = decode::resource_slice(
            br#"{"spec":{"driver":"d.io","devices":[{"name":"x","attributes":{"model":{"string":"m"},"other.io/cores":{"int":8},
                "fast":{"bool":true},"driverVersion":{"version":"1.10.0"}},"capacity":{"memory":{"value":"10Gi"}}}]}}"#,
            &mut Names::default(),
        )
        .unwrap();
        for (expression, expected) in [
            (r#"device.driver == "d.io""#, Ok(true)),
            (r#"device.attributes["d.io"].model == "m""#, Ok(true)),
            (
                r#"device.attributes["other.io"].cores > 4 && device.attributes["d.io"].fast"#,
                Ok(true),
            ),
            (
                r#"device.capacity["d.io"].memory.compareTo(quantity("8Gi")) >= 0"#,
                Ok(true),
            ),
            (
                r#"device.capacity["d.io"].memory.isGreaterThan(quantity("1Ti"))"#,
                Ok(false),
            ),
            (
                r#"device.attributes["d.io"].driverVersion.isGreaterThan(semver("1.9.9"))"#,
                Ok(true),
            ),
            (
                r#"device.attributes["d.io"].none == 1"#,
                Err("CEL runtime error: no such key: none"),
            ),
            (
                r#"device.attributes["none.io"].x == 1"#,
                Err("CEL runtime error: no such key: x"),
            ),
            (
                r#"device.attributes["d.io"].driverVersion.isLessThan(semver("1.10.1-rc.1"))"#,
                Ok(true),
            ),
            (
                r#"cel.bind(d, device.attributes["d.io"], d.fast && d.driverVersion.minor() == 10)"#,
                Ok(true),
            ),
            (
                r#"device.capacity["d.io"].memory.sub(quantity("4Gi")) == quantity("6Gi")"#,
                Ok(true),
            ),
            (
                r#"device.capacity["d.io"].memory.asInteger() == 10737418240"#,
                Ok(true),
            ),
            (
                r#""a-b".split("-")[1] == "b" && "AB".lowerAscii() == "ab""#,
                Ok(true),
            ),
            (r#""x12y3".findAll("[0-9]+") == ["12", "3"]"#, Ok(true)),
            (r#"[3, 1, 2].sum() == 6 && [3, 1].max() == 3"#, Ok(true)),
            (
                r#"isSemver("1.2.3") && !isSemver("1.2") && !isQuantity("x")"#,
                Ok(true),
            ),
            (
                r#"sets.contains(["m", "n"], [device.attributes["d.io"].model]) && !sets.equivalent([1], [1, 2])"#,
                Ok(true),
            ),
            (
                r#"semver("v1.2", true).isLessThan(device.attributes["d.io"].driverVersion)"#,
                Ok(true),
            ),
            (
                r#"1 / (device.attributes["other.io"].cores - 8) == 1"#,
                Err("CEL runtime error: division by zero"),
            ),
            (
                r#"device.attributes["d.io"].model < 1"#,
                Err("CEL runtime error: no such overload"),
            ),
            (
                r#"device.attributes["d.io"].model.isGreaterThan(quantity("1"))"#,
                Err(
                    "CEL runtime error: no such overload: isGreaterThan(string, kubernetes.Quantity)",
                ),
            ),
            (
                r#"semver("1.2").major() == 1"#,
                Err("CEL runtime error: No Major.Minor.Patch elements found"),
            ),
            (
                r#"[1][device.attributes["other.io"].cores] == 1"#,
                Err("CEL runtime error: index out of bounds: 8"),
            ),
            // Whatever it would be, the search goes on.
            (
                "lists.range(2000).all(x, lists.range(2000).all(y, x != y || x == y))",
                Err("CEL runtime error: operation cancelled: actual cost limit exceeded"),
            ),
            (
                r#"lists.range(9000).exists(x, device.attributes["d.io"].model.matches("(m|n)*o"))"#,
                Ok(false),
            ),
            (r#"has(device.attributes["d.io"].none)"#, Ok(false)),
            (r#""model" in device.attributes["d.io"]"#, Ok(true)),
        ] {
            let found = DeviceSelector::from(expression)
                .matches("d.io", &slice.devices[0], &mut { u64::MAX });
            assert_eq!(
                found.as_ref().map(|holds| *holds).map_err(String::as_str),
                expected,
                "{expression}"
            );
        }
    }
    #[test]
    fn what_is_too_deep_or_too_long_is_a_plain_error() {
        let slice = decode::resource_slice(
            br#"{"spec":{"driver":"d.io","devices":[{"name":"x"}]}}"#,
            &mut Names::default(),
        )
        .unwrap();
        for expression in [
            vec!["device.driver"; 5_000].join("+"),
            format!("device{}", ".x".repeat(5_000)),
            "(".repeat(5_000),
            format!("{}true{}", "[1].all(x, ".repeat(5_000), ")".repeat(5_000)),
            "x".repeat(200_000),
        ] {
            let found = DeviceSelector::from(expression.as_str()).matches(
                "d.io",
                &slice.devices[0],
                &mut { u64::MAX },
            );
            let words = found.unwrap_err();
            assert!(
                words.starts_with("CEL compile error: ") && words.len() < 200,
                "{words}"
            );
        }
    }
}
