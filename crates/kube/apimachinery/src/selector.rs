//! Label and field selectors: `app in (a,b),!legacy`, `spec.nodeName=n1`.

use plimsoll_golang::strconv::quote;

/// All requirements must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    pub labels: Vec<Requirement>,
    pub fields: Vec<FieldTerm>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Exists,
    Absent,
    In,
    NotIn,
    Greater,
    Less,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTerm {
    pub field: String,
    pub value: String,
    pub equal: bool,
}

impl Selector {
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// `label` and `field` look up what the object has; a field that it has not is empty.
    pub fn matches<'a>(
        &self,
        label: impl Fn(&str) -> Option<&'a str>,
        field: impl Fn(&str) -> &'a str,
    ) -> bool {
        self.labels
            .iter()
            .all(|requirement| requirement.matches(&label))
            && self
                .fields
                .iter()
                .all(|term| (field(&term.field) == term.value) == term.equal)
    }

    /// The one name that can match, where the selector says so.
    pub fn single_name(&self) -> Option<&str> {
        self.fields
            .iter()
            .find(|term| term.equal && term.field == "metadata.name")
            .map(|term| term.value.as_str())
    }
}

impl Requirement {
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let value = label(&self.key);
        let listed = |value: &str| self.values.iter().any(|one| one == value);
        let compared = |wanted: fn(i64, i64) -> bool| {
            let bound = self.values.first().and_then(|bound| bound.parse().ok());
            match (value.and_then(|value| value.parse().ok()), bound) {
                (Some(value), Some(bound)) => wanted(value, bound),
                _ => false,
            }
        };
        match self.operator {
            Operator::Exists => value.is_some(),
            Operator::Absent => value.is_none(),
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Greater => compared(|value, bound| value > bound),
            Operator::Less => compared(|value, bound| value < bound),
        }
    }
}

/// In Kubernetes' words.
pub type SelectorError = String;

pub fn parse_labels(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = LabelParser {
        tokens: tokens(text),
        at: 0,
    };
    parser.requirements()
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(&'static str),
    End,
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(word) => word,
            Self::Sign(sign) => sign,
            Self::End => "",
        }
    }
}

const SIGNS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    // For Go's reader, a zero byte is the end.
    let text = text.split('\0').next().unwrap_or_default();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            found.push(Token::Sign(sign));
            rest = rest[sign.len()..].trim_start();
            continue;
        }
        let end = rest
            .find(|c: char| c.is_whitespace() || "=!(),<>".contains(c))
            .unwrap_or(rest.len());
        found.push(Token::Word(rest[..end].to_owned()));
        rest = rest[end..].trim_start();
    }
    found.push(Token::End);
    found
}

struct LabelParser {
    tokens: Vec<Token>,
    at: usize,
}

impl LabelParser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn requirements(&mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Sign("!") => {
                    let requirement = self
                        .requirement()
                        .map_err(|error| format!("unable to parse requirement: {error}"))?;
                    requirements.push(requirement);
                    match self.take() {
                        Token::End => break,
                        Token::Sign(",") => {
                            if !matches!(self.peek(), Token::Word(_) | Token::Sign("!")) {
                                return Err(format!(
                                    "found '{}', expected: identifier after ','",
                                    self.peek().text()
                                ));
                            }
                        }
                        other => {
                            return Err(format!(
                                "found '{}', expected: ',' or 'end of string'",
                                other.text()
                            ));
                        }
                    }
                }
                Token::End => break,
                other => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.text()
                    ));
                }
            }
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(requirements)
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let absent = *self.peek() == Token::Sign("!");
        if absent {
            self.at += 1;
        }
        let key = match self.take() {
            Token::Word(word) => word,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        if let Some(problem) = bad_key(&key) {
            return Err(problem);
        }
        let with = |operator, values| {
            Ok(Requirement {
                key: key.clone(),
                operator,
                values,
            })
        };
        if absent {
            return with(Operator::Absent, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Sign(",")) {
            return with(Operator::Exists, Vec::new());
        }
        let operator = match self.take() {
            Token::Word(word) if word == "in" => Operator::In,
            Token::Word(word) if word == "notin" => Operator::NotIn,
            Token::Sign("=" | "==") => return with(Operator::In, vec![self.exact_value(&key)?]),
            Token::Sign("!=") => return with(Operator::NotIn, vec![self.exact_value(&key)?]),
            Token::Sign(">") => return with(Operator::Greater, vec![self.number(&key)?]),
            Token::Sign("<") => return with(Operator::Less, vec![self.number(&key)?]),
            other => {
                return Err(format!(
                    "found '{}', expected: in, notin, =, ==, !=, gt, lt",
                    other.text()
                ));
            }
        };
        let values = self.values()?;
        for (index, value) in values.iter().enumerate() {
            check_value(&key, index, value)?;
        }
        with(operator, values)
    }

    fn exact_value(&mut self, key: &str) -> Result<String, SelectorError> {
        let value = match self.peek() {
            Token::End | Token::Sign(",") => return Ok(String::new()),
            Token::Word(word) => word.clone(),
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        self.at += 1;
        check_value(key, 0, &value)?;
        Ok(value)
    }

    fn number(&mut self, key: &str) -> Result<String, SelectorError> {
        let value = self.exact_value(key)?;
        if value.parse::<i64>().is_err() {
            return Err(format!(
                "values[0]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                quote(&value)
            ));
        }
        Ok(value)
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        let open = self.take();
        if open != Token::Sign("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        let mut values = Vec::new();
        loop {
            match self.take() {
                Token::Word(word) => {
                    values.push(word);
                    match self.take() {
                        Token::Sign(",") => {
                            // A trailing comma means the empty value.
                            if *self.peek() == Token::Sign(")") {
                                values.push(String::new());
                            }
                        }
                        Token::Sign(")") => break,
                        other => {
                            return Err(format!("found '{}', expected: ',' or ')'", other.text()));
                        }
                    }
                }
                Token::Sign(",") => values.push(String::new()),
                Token::Sign(")") => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    break;
                }
                other => {
                    return Err(format!(
                        "found '{}', expected: ',', ')' or identifier",
                        other.text()
                    ));
                }
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }
}

const NAME_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const KEY_RULE: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const PREFIX_RULE: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn is_label_text(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.iter().copied().all(inner) && outer(bytes.first()) && outer(bytes.last())
}

fn is_domain(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.split('.').all(|part| {
        let outer = !part.starts_with('-') && !part.ends_with('-');
        !part.is_empty() && outer && part.bytes().all(inner)
    })
}

/// What is wrong with a label's key or any other qualified name, all of it.
pub fn name_problem(key: &str) -> Option<String> {
    let mut problems = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => return Some(KEY_RULE.to_owned()),
        Some((prefix, name)) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty");
            }
            if prefix.len() > 253 {
                problems.push("prefix part must be no more than 253 bytes");
            }
            if !prefix.is_empty() && !is_domain(prefix) {
                problems.push(PREFIX_RULE);
            }
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty");
    }
    if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes");
    }
    if !is_label_text(name) {
        problems.push(NAME_RULE);
    }
    (!problems.is_empty()).then(|| problems.join("; "))
}

fn bad_key(key: &str) -> Option<String> {
    let rule = name_problem(key)?;
    Some(format!("<nil>: Invalid value: {}: {rule}", quote(key)))
}

fn check_value(key: &str, index: usize, value: &str) -> Result<(), SelectorError> {
    let mut problems = Vec::new();
    if value.len() > 63 {
        problems.push("must be no more than 63 bytes");
    }
    if !value.is_empty() && !is_label_text(value) {
        problems.push(VALUE_RULE);
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!(
        "values[{index}][{key}]: Invalid value: {}: {}",
        quote(value),
        problems.join("; ")
    ))
}

pub fn parse_fields(text: &str) -> Result<Vec<FieldTerm>, SelectorError> {
    let mut terms = Vec::new();
    for part in split_terms(text) {
        if part.is_empty() {
            continue;
        }
        let operator = part
            .match_indices(['=', '!'])
            .find_map(|(at, _)| {
                ["!=", "==", "="]
                    .into_iter()
                    .find(|operator| part[at..].starts_with(operator))
                    .map(|operator| (at, operator))
            })
            .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))?;
        let (at, operator) = operator;
        terms.push(FieldTerm {
            field: part[..at].to_owned(),
            value: unescaped(&part[at + operator.len()..])?,
            equal: operator != "!=",
        });
    }
    Ok(terms)
}

/// At commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Commas, equals signs and backslashes stand behind a backslash, and nothing else does.
fn unescaped(text: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => {
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: \\{other}"
                    ));
                }
                None => {
                    return Err("invalid field selector: invalid escape sequence: \\".to_owned());
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                ));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_labels(selector: &str, labels: &[(&str, &str)], expected: bool) {
        let selector = Selector {
            labels: parse_labels(selector).unwrap(),
            fields: Vec::new(),
        };
        let label = |name: &str| labels.iter().find(|one| one.0 == name).map(|one| one.1);
        assert_eq!(selector.matches(label, |_| ""), expected);
    }

    #[test]
    fn labels() {
        let labels = [("app", "a"), ("n", "5")];
        for (selector, expected) in [
            ("", true),
            ("app", true),
            ("!app", false),
            ("app=a", true),
            ("app==b", false),
            ("app!=b,x!=y", true),
            ("app in (a, b),!z", true),
            ("app notin (a)", false),
            ("z notin (a)", true),
            ("n>4,n<6", true),
            ("z=", false),
            ("app\0,z", true),
        ] {
            check_labels(selector, &labels, expected);
        }
    }

    #[test]
    fn complaints_as_kubernetes_has_them() {
        for (selector, expected) in [
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            (
                "a===",
                "unable to parse requirement: found '=', expected: identifier",
            ),
            (
                "a in (",
                "unable to parse requirement: found '', expected: ',', ')' or identifier",
            ),
            (
                ",",
                "found ',', expected: !, identifier, or 'end of string'",
            ),
            ("a,", "found '', expected: identifier after ','"),
            (
                "/b",
                "unable to parse requirement: <nil>: Invalid value: \"/b\": prefix part must be non-empty",
            ),
            (
                "A_B/c",
                &format!(
                    "unable to parse requirement: <nil>: Invalid value: \"A_B/c\": {PREFIX_RULE}"
                ),
            ),
            (
                "a.b/",
                &format!(
                    "unable to parse requirement: <nil>: Invalid value: \"a.b/\": name part must be non-empty; {NAME_RULE}"
                ),
            ),
        ] {
            assert_eq!(parse_labels(selector).unwrap_err(), expected);
        }
        assert_eq!(
            parse_fields("foo").unwrap_err(),
            "invalid selector: 'foo'; can't understand 'foo'"
        );
    }

    #[test]
    fn fields() {
        let terms = parse_fields("spec.nodeName=n1,metadata.name!=a\\,b").unwrap();
        assert_eq!(terms[0].value, "n1");
        assert_eq!((terms[1].value.as_str(), terms[1].equal), ("a,b", false));
    }
}
