//! Selectors of devices, in CEL.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue};
use cel::objects::{Key, Map};
use cel::parser::{Macro, MacroExprHelper};
use cel::{Context, Env, ExecutionError, IdedExpr, ParseError, Value};

use super::library;
use crate::model::devices::{Attribute, Device};

fn environment() -> &'static Arc<Env> {
    static ENVIRONMENT: OnceLock<Arc<Env>> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let mut env = Env::stdlib();
        // Nothing else is called by these names.
        let _ = env.add_extension(cel::extensions::strings);
        let _ = env.add_macro(Macro::receiver("bind", 3, bind));
        let _ = env.add_macro(Macro::receiver("contains", 2, |helper, target, args| {
            of_sets("@contains", helper, target, args)
        }));
        let _ = env.add_macro(Macro::receiver("equivalent", 2, |helper, target, args| {
            of_sets("@equivalent", helper, target, args)
        }));
        let _ = env.add_macro(Macro::receiver("intersects", 2, |helper, target, args| {
            of_sets("@intersects", helper, target, args)
        }));
        Arc::new(env)
    })
}

/// `cel.bind(name, value, expression)`: a loop that is not run, whose sum begins with the value.
fn bind(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    let is_ours = target
        .as_ref()
        .is_some_and(|target| target.expr == Expr::Ident("cel".to_owned()));
    let Some(IdedExpr {
        expr: Expr::Ident(name),
        ..
    }) = args.first().filter(|_| is_ours).cloned()
    else {
        return Ok(None);
    };
    let (Some(result), Some(accu_init)) = (args.pop(), args.pop()) else {
        return Ok(None);
    };
    let nothing = Expr::List(ListExpr::new(Vec::new()));
    let comprehension = ComprehensionExpr {
        iter_range: helper.next_expr(nothing),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        loop_cond: helper.next_expr(Expr::Literal(LiteralValue::Boolean(false.into()))),
        loop_step: helper.next_expr(Expr::Ident(name.clone())),
        accu_var: name,
        accu_init,
        result,
    };
    let comprehension = Expr::Comprehension(Box::new(comprehension));
    Ok(Some(helper.next_expr(comprehension)))
}

/// `sets.contains(list, list)` and the like: a call of a function that is nobody's method.
fn of_sets(
    function: &str,
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    let is_ours = target
        .as_ref()
        .is_some_and(|target| target.expr == Expr::Ident("sets".to_owned()));
    if !is_ours {
        return Ok(None);
    }
    let call = CallExpr {
        func_name: function.to_owned(),
        target: None,
        args: std::mem::take(args),
    };
    Ok(Some(helper.next_expr(Expr::Call(call))))
}

/// What went wrong, in the words of the original's CEL.
fn in_words(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::IndexOutOfBounds(Value::Int(index)) => {
            format!("index out of bounds: {index}")
        }
        ExecutionError::NoSuchOverload(_)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedTargetType { .. }
        | ExecutionError::NotSupportedAsMethod { .. }
        | ExecutionError::UnexpectedType { .. } => "no such overload".to_owned(),
        ExecutionError::FunctionError { function, message } => match function.as_str() {
            "int" | "uint" | "double" => {
                format!("type conversion error from 'string' to '{function}'")
            }
            _ => message.clone(),
        },
        other => other.to_string(),
    }
}

/// Whether an expression holds for a device. The error is in the words of CEL.
pub fn matches(expression: &str, driver: &str, device: &Device) -> Result<bool, String> {
    let program = environment()
        .compile(expression)
        .map_err(|error| format!("CEL compile error: {error}"))?;
    let mut context = Context::with_env(environment().clone());
    context.add_variable_from_value("device", value(expression, driver, device));
    library::add(&mut context);
    match program.execute(&context) {
        Ok(Value::Bool(holds)) => Ok(holds),
        Ok(_) => Err("CEL runtime error: expression does not give a bool".to_owned()),
        Err(error) => Err(format!("CEL runtime error: {}", in_words(&error))),
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
            Attribute::Version(text) => library::version(text).unwrap_or(Value::Null),
        };
        insert(&mut attributes, name, driver, value);
    }
    for (name, amount) in &device.capacity {
        insert(
            &mut capacity,
            name,
            driver,
            library::quantity(amount.value.clone()),
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
