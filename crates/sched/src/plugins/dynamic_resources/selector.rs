//! Selectors of devices, in CEL.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use cel::extractors::This;
use cel::objects::{Key, Map};
use cel::{Context, Env, ExecutionError, Value};
use plimsoll_api::quantity::Quantity;

use crate::model::devices::{Attribute, Device};

fn environment() -> &'static Arc<Env> {
    static ENVIRONMENT: OnceLock<Arc<Env>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| Arc::new(Env::stdlib()))
}

/// Whether an expression holds for a device. The error is in the words of CEL.
pub fn matches(expression: &str, driver: &str, device: &Device) -> Result<bool, String> {
    let program = environment()
        .compile(expression)
        .map_err(|error| format!("CEL compile error: {error}"))?;
    let mut context = Context::with_env(environment().clone());
    context.add_variable_from_value("device", value(expression, driver, device));
    // Quantities and versions are numbers in here, so one set of comparisons does for both.
    let _ = context.add_function(
        "quantity",
        |text: Arc<String>| -> Result<i64, ExecutionError> {
            let quantity = text.parse::<Quantity>();
            quantity
                .map(|quantity| quantity.milli())
                .map_err(|error| ExecutionError::function_error("quantity", error))
        },
    );
    let _ = context.add_function("semver", |text: Arc<String>| version(&text));
    let _ = context.add_function("compareTo", |This(own): This<i64>, other: i64| {
        own.cmp(&other) as i64
    });
    let _ = context.add_function("isGreaterThan", |This(own): This<i64>, other: i64| {
        own > other
    });
    let _ = context.add_function("isLessThan", |This(own): This<i64>, other: i64| own < other);
    let _ = context.add_function(
        "matches",
        |This(own): This<Arc<String>>, pattern: Arc<String>| -> Result<bool, ExecutionError> {
            let pattern = regex::Regex::new(&pattern);
            pattern
                .map(|pattern| pattern.is_match(&own))
                .map_err(|error| ExecutionError::function_error("matches", error))
        },
    );
    match program.execute(&context) {
        Ok(Value::Bool(holds)) => Ok(holds),
        Ok(_) => Err("CEL runtime error: expression does not give a bool".to_owned()),
        Err(ExecutionError::NoSuchKey(key)) => {
            Err(format!("CEL runtime error: no such key: {key}"))
        }
        Err(error) => Err(format!("CEL runtime error: {error}")),
    }
}

/// Major, minor and patch in one number that compares as they do.
fn version(text: &str) -> i64 {
    let plain = text.split(['-', '+']).next().unwrap_or_default();
    let mut parts = plain
        .split('.')
        .map(|part| part.parse::<i64>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0) & 0x1f_ffff;
    (next() << 42) | (next() << 21) | next()
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
            Attribute::Version(text) => Value::Int(version(text)),
        };
        insert(&mut attributes, name, driver, value);
    }
    for (name, amount) in &device.capacity {
        insert(
            &mut capacity,
            name,
            driver,
            Value::Int(amount.value.milli()),
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
            (r#"has(device.attributes["d.io"].none)"#, Ok(false)),
            (r#""model" in device.attributes["d.io"]"#, Ok(true)),
        ] {
            let found = matches(expression, "d.io", &slice.devices[0]);
            assert_eq!(
                found.as_ref().map(|holds| *holds).map_err(String::as_str),
                expected,
                "{expression}"
            );
        }
    }
}
