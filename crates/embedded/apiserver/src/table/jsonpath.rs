//! The JSONPath that printer columns are written in: fields, indexes, slices, unions, wildcards, `..` and filters.

use std::cell::Cell;
use std::cmp::Ordering;

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    /// Start, end, step; an index is a slice of one.
    Slice(Slice),
    Wildcard,
    Recursive,
    Union(Vec<JsonPath>),
    Filter(JsonPath, Comparison),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Slice {
    Index(i64),
    Range(Option<i64>, Option<i64>, usize),
}

#[derive(Debug, Clone, PartialEq)]
enum Comparison {
    Exists,
    With(String, JsonPath),
}

/// The path cannot be read, or does not fit the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfit;

impl JsonPath {
    /// Without the braces around it.
    pub fn parse(text: &str) -> Result<Self, Unfit> {
        let mut rest = text;
        let mut steps = Vec::new();
        while let Some(c) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix("..") {
                if steps.last() == Some(&Step::Recursive) {
                    return Err(Unfit);
                }
                steps.push(Step::Recursive);
                rest = after;
                if rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
                    rest = field(rest, &mut steps);
                }
                continue;
            }
            if let Some(after) = rest.strip_prefix("[?(") {
                let (condition, after) = filter_text(after)?;
                steps.push(parse_filter(condition)?);
                rest = after;
                continue;
            }
            match c {
                ' ' | '@' | '$' => rest = &rest[1..],
                '[' => {
                    let (inner, after) = rest[1..].split_once(']').ok_or(Unfit)?;
                    bracket(inner, &mut steps)?;
                    rest = after;
                }
                '"' | '\'' => {
                    let (text, after) = quoted(rest, c)?;
                    steps.push(Step::Literal(text.into()));
                    rest = after;
                }
                '.' => rest = field(&rest[1..], &mut steps),
                '+' | '-' | '0'..='9' => {
                    let end = rest[1..]
                        .find(|c: char| c != '.' && !c.is_ascii_digit())
                        .map_or(rest.len(), |at| at + 1);
                    let number = rest[..end].trim_start_matches('+');
                    let value = match number.parse::<i64>() {
                        Ok(whole) => whole.into(),
                        Err(_) => number.parse::<f64>().map_err(|_| Unfit)?.into(),
                    };
                    steps.push(Step::Literal(value));
                    rest = &rest[end..];
                }
                _ => {
                    // Anything else that is a word would be a keyword, of which columns know none.
                    let end = word_end(rest);
                    match &rest[..end] {
                        "true" => steps.push(Step::Literal(true.into())),
                        "false" => steps.push(Step::Literal(false.into())),
                        _ => return Err(Unfit),
                    }
                    rest = &rest[end..];
                }
            }
        }
        Ok(Self(steps))
    }

    pub fn find<'a>(&'a self, object: &'a Value) -> Result<Vec<&'a Value>, Unfit> {
        self.find_within(object, &Effort(Cell::new(MOST_FOUND)))
    }

    fn find_within<'a>(
        &'a self,
        object: &'a Value,
        effort: &Effort,
    ) -> Result<Vec<&'a Value>, Unfit> {
        let mut current = vec![object];
        for step in &self.0 {
            current = step.apply(current, effort)?;
        }
        Ok(current)
    }
}

/// Values that may be come by on the way to those that are found. Steps like `..*` and unions multiply them.
const MOST_FOUND: usize = 1_000_000;

struct Effort(Cell<usize>);

impl Effort {
    fn spend(&self, values: usize) -> Result<(), Unfit> {
        let left = self.0.get().checked_sub(values).ok_or(Unfit)?;
        self.0.set(left);
        Ok(())
    }
}

fn word_end(text: &str) -> usize {
    text.find([
        ' ', '\t', '\r', '\n', '.', ',', '[', ']', '$', '@', '{', '}',
    ])
    .unwrap_or(text.len())
}

/// Reads a name up to the next terminator that is not escaped, and returns what follows.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> &'a str {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            if let Some((_, escaped)) = chars.next() {
                name.push(escaped);
            }
        } else if word_end(&text[at..]) == 0 {
            end = at;
            break;
        } else {
            name.push(c);
        }
    }
    steps.push(match name.as_str() {
        "*" => Step::Wildcard,
        _ => Step::Field(name),
    });
    &text[end..]
}

fn bracket(inner: &str, steps: &mut Vec<Step>) -> Result<(), Unfit> {
    if inner == "*" {
        steps.push(Step::Slice(Slice::Range(None, None, 1)));
        return Ok(());
    }
    if inner.contains(',') {
        let parts = inner
            .split(',')
            .map(|part| JsonPath::parse(&format!("[{}]", part.trim())))
            .collect::<Result<_, _>>()?;
        steps.push(Step::Union(parts));
        return Ok(());
    }
    if let Some(key) = inner
        .strip_prefix('\'')
        .and_then(|inner| inner.strip_suffix('\''))
    {
        // The key may itself hold dots, which then are steps unless escaped.
        steps.extend(JsonPath::parse(&format!(".{key}"))?.0);
        return Ok(());
    }
    let number = |text: &str| match text {
        "" => Ok(None),
        digits => digits.parse::<i64>().map(Some).map_err(|_| Unfit),
    };
    let mut parts = inner.split(':');
    let first = number(parts.next().unwrap_or_default())?;
    let Some(second) = parts.next() else {
        steps.push(Step::Slice(Slice::Index(first.ok_or(Unfit)?)));
        return Ok(());
    };
    let step = match number(parts.next().unwrap_or_default())? {
        None => 1,
        Some(step) => usize::try_from(step).map_err(|_| Unfit)?,
    };
    if step == 0 || parts.next().is_some() {
        return Err(Unfit);
    }
    steps.push(Step::Slice(Slice::Range(first, number(second)?, step)));
    Ok(())
}

/// Splits at the `)]` that ends a filter, which may hold one quoted text.
fn filter_text(text: &str) -> Result<(&str, &str), Unfit> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match quote {
            Some(open) => {
                if c == open && !escaped {
                    quote = None;
                }
                escaped = c == '\\' && !escaped;
            }
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == ')' => {
                let after = text[at + 1..].strip_prefix(']').ok_or(Unfit)?;
                return Ok((&text[..at], after));
            }
            None => {}
        }
    }
    Err(Unfit)
}

fn parse_filter(text: &str) -> Result<Step, Unfit> {
    const OPERATOR: [char; 4] = ['!', '<', '>', '='];
    let Some(at) = text.find(OPERATOR).filter(|at| *at > 0) else {
        return Ok(Step::Filter(JsonPath::parse(text)?, Comparison::Exists));
    };
    let right = text[at..].trim_start_matches(OPERATOR);
    let operator = &text[at..text.len() - right.len()];
    let comparison = Comparison::With(operator.to_owned(), JsonPath::parse(right)?);
    Ok(Step::Filter(JsonPath::parse(&text[..at])?, comparison))
}

/// A quoted text, with escapes undone, and what follows.
fn quoted(text: &str, quote: char) -> Result<(String, &str), Unfit> {
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next().ok_or(Unfit)?.1 {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => out.push('\r'),
                other => out.push(other),
            },
            c if c == quote => return Ok((out, &text[at + 1..])),
            c => out.push(c),
        }
    }
    Err(Unfit)
}

impl Step {
    fn apply<'a>(
        &'a self,
        input: Vec<&'a Value>,
        effort: &Effort,
    ) -> Result<Vec<&'a Value>, Unfit> {
        effort.spend(input.len())?;
        let mut out = Vec::new();
        match self {
            Self::Field(name) => out.extend(input.iter().filter_map(|value| value.get(name))),
            Self::Slice(slice) => {
                for value in input {
                    match value {
                        Value::Null => {}
                        Value::Array(items) => {
                            effort.spend(items.len())?;
                            out.extend(slice.of(items)?);
                        }
                        _ => return Err(Unfit),
                    }
                }
            }
            Self::Wildcard => {
                for value in input {
                    let children = children(value);
                    effort.spend(children.len())?;
                    out.extend(children);
                }
            }
            Self::Recursive => {
                for value in input {
                    descend(value, &mut out, effort)?;
                }
            }
            Self::Union(paths) => {
                for path in paths {
                    let mut found = input.clone();
                    for step in &path.0 {
                        found = step.apply(found, effort)?;
                    }
                    out.extend(found);
                }
            }
            Self::Filter(left, comparison) => {
                for value in input {
                    let items = value.as_array().ok_or(Unfit)?;
                    for item in items {
                        if comparison.holds(left, item, effort)? {
                            out.push(item);
                        }
                    }
                }
            }
            Self::Literal(value) => out.extend(input.iter().map(|_| value)),
        }
        Ok(out)
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    }
}

fn descend<'a>(value: &'a Value, out: &mut Vec<&'a Value>, effort: &Effort) -> Result<(), Unfit> {
    let inner = children(value);
    effort.spend(inner.len())?;
    if !inner.is_empty() {
        out.push(value);
        for child in inner {
            descend(child, out, effort)?;
        }
    }
    Ok(())
}

impl Slice {
    fn of(self, items: &[Value]) -> Result<impl Iterator<Item = &Value>, Unfit> {
        let length = items.len() as i64;
        let from_end = |at: i64| if at < 0 { at + length } else { at };
        let (start, end, step) = match self {
            Self::Index(at) if from_end(at) >= length => return Err(Unfit),
            Self::Index(at) => (from_end(at), from_end(at) + 1, 1),
            Self::Range(start, end, step) => (
                from_end(start.unwrap_or(0)),
                from_end(end.unwrap_or(length)),
                step,
            ),
        };
        let chosen = if start == end {
            &items[..0]
        } else if (0..length).contains(&start) && (start..=length).contains(&end) {
            &items[start as usize..end as usize]
        } else {
            return Err(Unfit);
        };
        Ok(chosen.iter().step_by(step))
    }
}

impl Comparison {
    fn holds(&self, left: &JsonPath, item: &Value, effort: &Effort) -> Result<bool, Unfit> {
        effort.spend(1)?;
        let found = left.find_within(item, effort);
        let Self::With(operator, right) = self else {
            return Ok(found.is_ok_and(|found| !found.is_empty()));
        };
        let (found, right) = (found?, right.find_within(item, effort)?);
        let (left, right) = match (found.as_slice(), right.as_slice()) {
            ([left], [right]) => (*left, *right),
            ([], _) | (_, []) => return Ok(false),
            _ => return Err(Unfit),
        };
        let order = match (left, right) {
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            (Value::Bool(a), Value::Bool(b)) if a == b => Some(Ordering::Equal),
            (Value::Bool(_), Value::Bool(_)) if operator == "!=" => return Ok(true),
            (Value::Bool(_), Value::Bool(_)) if operator == "==" => return Ok(false),
            _ => None,
        }
        .ok_or(Unfit)?;
        match operator.as_str() {
            "==" => Ok(order.is_eq()),
            "!=" => Ok(order.is_ne()),
            "<" => Ok(order.is_lt()),
            "<=" => Ok(order.is_le()),
            ">" => Ok(order.is_gt()),
            ">=" => Ok(order.is_ge()),
            _ => Err(Unfit),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &str) {
        let object = json!({
            "spec": {"replicas": 3, "a.b/c": "dotted", "items": [{"n": 1}, {"n": 2}, {"n": 3}], "none": null},
            "status": {"conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "Stalled", "status": "False", "reason": "a)b"},
            ]},
        });
        let shown = match JsonPath::parse(path) {
            Err(Unfit) => "unreadable".to_owned(),
            Ok(path) => match path.find(&object) {
                Err(Unfit) => "unfit".to_owned(),
                Ok(found) => serde_json::to_string(&found).unwrap(),
            },
        };
        assert_eq!(shown, expected, "{path}");
    }

    #[test]
    fn paths() {
        check(".spec.replicas", "[3]");
        check("$.spec.replicas", "[3]");
        check(".spec['replicas']", "[3]");
        check(r".spec.a\.b/c", r#"["dotted"]"#);
        check(r".spec['a\.b/c']", r#"["dotted"]"#);
        check(".spec.missing.deeper", "[]");
        check(".spec.none", "[null]");
        check(".spec.items[1].n", "[2]");
        check(".spec.items[-1].n", "[3]");
        check(".spec.items[5].n", "unfit");
        check(".spec.items[0:2].n", "[1,2]");
        check(".spec.items[0,2].n", "[1,3]");
        check(".spec.items[*].n", "[1,2,3]");
        check("..n", "[1,2,3]");
        check(
            r#".status.conditions[?(@.type=="Ready")].status"#,
            r#"["True"]"#,
        );
        check(
            ".status.conditions[?(@.reason=='a)b')].status",
            r#"["False"]"#,
        );
        check(".status.conditions[?(@.reason)].type", r#"["Stalled"]"#);
        check(".spec.items[?(@.n>=2)].n", "[2,3]");
        check(".spec[?(@.n)]", "unfit");
        check(".spec.items[", "unreadable");
        check("spec", "unreadable");
        check(".spec.items[9223372036854775807]", "unfit");
        check(".spec.items[-9223372036854775808:]", "unfit");
    }

    /// Each of these steps multiplies what the one before has found.
    #[test]
    fn what_multiplies_is_bounded() {
        let deep = (0..90).fold(json!([1, 2]), |inner, _| json!([inner, {"a": 1}]));
        let wide = json!({"a": vec![1; 100]});
        for (path, object) in [
            ("..[*]".repeat(20), &deep),
            (format!(".a{}", "[0,0]".repeat(64)), &json!({"a": [[[0]]]})),
            (format!(".a{}", "[0:,0:,0:]".repeat(20)), &wide),
        ] {
            let path = JsonPath::parse(&path).unwrap();
            // It is not found, or it is, but soon.
            let _ = path.find(object);
        }
        let path = JsonPath::parse(&"..[0:]".repeat(20)).unwrap();
        let lists = (0..90).fold(json!([1, 2]), |inner, _| json!([inner, [3]]));
        assert_eq!(path.find(&lists), Err(Unfit));
    }
}
