//! The formats of names, labels, keys and the like: each rule returns what is wrong with a text, in Kubernetes' words.

pub use super::addresses::{canonical_ip, cidr, ip, parse_cidr, parse_ip, shares_prefix};

/// Which names a kind may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    Subdomain,
    /// A subdomain, where only the name that comes out counts and not what it is generated from.
    SubdomainInTheEnd,
    Label,
    /// A label that starts with a letter.
    Label1035,
    /// Anything that fits into a URL path.
    PathSegment,
    /// An IP address, written the canonical way.
    Address,
}

impl NameRule {
    /// `prefix`: a `generateName`, which gets a suffix, so that it may end in a dash.
    pub fn complaints(self, name: &str, prefix: bool) -> Vec<String> {
        let masked;
        let name = if prefix && name.len() > 1 && name.ends_with('-') && self != Self::PathSegment {
            masked = format!("{}a", name.get(..name.len() - 2).unwrap_or_default());
            &masked
        } else {
            name
        };
        match self {
            Self::PathSegment | Self::SubdomainInTheEnd if prefix => path_segment_content(name),
            Self::Subdomain | Self::SubdomainInTheEnd => subdomain(name),
            Self::Label => label(name),
            Self::Label1035 => label_1035(name),
            Self::PathSegment => path_segment(name),
            Self::Address => ip(name),
        }
    }
}

pub(super) fn one(complaint: impl Into<String>) -> Vec<String> {
    vec![complaint.into()]
}

fn at_most(max: usize, text: &str, unit: &str, out: &mut Vec<String>) {
    if text.len() > max {
        out.push(format!("must be no more than {max} {unit}"));
    }
}

/// A complaint about a text that does not match a regular expression, with examples of ones that do.
pub fn pattern(words: &str, expression: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{words} (regex used for validation is '{expression}')");
    }
    let examples: Vec<String> = examples.iter().map(|one| format!("'{one}', ")).collect();
    format!(
        "{words} (e.g. {}regex used for validation is '{expression}')",
        examples.join(" or ")
    )
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Starts and ends with `edge`, and is `inner` in between.
fn shaped(text: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match bytes {
        [] => false,
        [first, .., last] => {
            edge(*first) && edge(*last) && bytes.iter().all(|&byte| inner(byte) || edge(byte))
        }
        [only] => edge(*only),
    }
}

fn is_dash(byte: u8) -> bool {
    byte == b'-'
}

pub fn is_label(text: &str) -> bool {
    shaped(text, is_lower_alphanumeric, is_dash)
}

pub fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

pub fn label(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    at_most(63, text, "characters", &mut out);
    if !is_label(text) {
        out.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            pattern(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
                &["my-name", "123-abc"],
            )
        });
    }
    out
}

pub fn subdomain(text: &str) -> Vec<String> {
    subdomain_in(text, "characters")
}

fn subdomain_in(text: &str, unit: &str) -> Vec<String> {
    let mut out = Vec::new();
    at_most(253, text, unit, &mut out);
    if !is_subdomain(text) {
        out.push(pattern(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    out
}

/// A DNS search domain, whose labels may have underscores.
pub fn subdomain_with_underscore(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    at_most(253, text, "characters", &mut out);
    let good = text.split('.').all(|label| {
        shaped(
            label.strip_prefix('_').unwrap_or(label),
            is_lower_alphanumeric,
            |byte| byte == b'-' || byte == b'_',
        )
    });
    if !good {
        out.push(pattern(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    out
}

pub fn label_1035(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    at_most(63, text, "characters", &mut out);
    if !(is_label(text) && text.as_bytes()[0].is_ascii_lowercase()) {
        out.push(pattern(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    out
}

pub fn wildcard_subdomain(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    at_most(253, text, "characters", &mut out);
    if !text.strip_prefix("*.").is_some_and(is_subdomain) {
        out.push(pattern(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
            &["*.example.com"],
        ));
    }
    out
}

pub fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return one(format!("may not be '{text}'"));
    }
    path_segment_content(text)
}

fn path_segment_content(text: &str) -> Vec<String> {
    ["/", "%"]
        .iter()
        .filter(|illegal| text.contains(**illegal))
        .map(|illegal| format!("may not contain '{illegal}'"))
        .collect()
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn is_label_inner(byte: u8) -> bool {
    matches!(byte, b'-' | b'_' | b'.')
}

const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const QUALIFIED_PATTERN: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];

/// A label key: a name with an optional domain in front.
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut parts = text.split('/');
    let (first, second, third) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let name = match (second, third) {
        (None, _) => first,
        (Some(name), None) => {
            if first.is_empty() {
                out.push("prefix part must be non-empty".to_owned());
            } else {
                let complaints = subdomain_in(first, "bytes").into_iter();
                out.extend(complaints.map(|complaint| format!("prefix part {complaint}")));
            }
            name
        }
        _ => {
            return one(format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                pattern(QUALIFIED, QUALIFIED_PATTERN, QUALIFIED_EXAMPLES)
            ));
        }
    };
    if name.is_empty() {
        out.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        out.push("name part must be no more than 63 bytes".to_owned());
    }
    if !shaped(name, is_alphanumeric, is_label_inner) {
        let complaint = pattern(QUALIFIED, QUALIFIED_PATTERN, QUALIFIED_EXAMPLES);
        out.push(format!("name part {complaint}"));
    }
    out
}

pub fn label_value(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    at_most(63, text, "bytes", &mut out);
    if !text.is_empty() && !shaped(text, is_alphanumeric, is_label_inner) {
        out.push(pattern(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    out
}

pub fn port_name(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    at_most(15, text, "characters", &mut out);
    let good = |byte: u8| is_lower_alphanumeric(byte) || byte == b'-';
    if text.is_empty() || !text.bytes().all(good) {
        out.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        out.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        out.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        out.push("must not begin or end with a hyphen".to_owned());
    }
    out
}

pub fn config_key(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    at_most(253, text, "characters", &mut out);
    if text.is_empty()
        || !text
            .bytes()
            .all(|byte| is_alphanumeric(byte) || is_label_inner(byte))
    {
        out.push(pattern(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match text {
        "." => out.push("must not be '.'".to_owned()),
        ".." => out.push("must not be '..'".to_owned()),
        text if text.starts_with("..") => out.push("must not start with '..'".to_owned()),
        _ => {}
    }
    out
}

pub fn env_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return one("environment variable name must be non-empty");
    }
    if text.chars().any(|c| !(' '..='~').contains(&c) || c == '=') {
        return one(
            "a valid environment variable name must consist only of printable ASCII characters other than '='",
        );
    }
    Vec::new()
}

pub fn http_header(text: &str) -> Vec<String> {
    if !text.is_empty()
        && text
            .bytes()
            .all(|byte| is_alphanumeric(byte) || byte == b'-')
    {
        return Vec::new();
    }
    one(pattern(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    ))
}

pub fn c_identifier(text: &str) -> Vec<String> {
    let mut bytes = text.bytes();
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    if bytes.next().is_some_and(is_first) && bytes.all(|byte| is_alphanumeric(byte) || byte == b'_')
    {
        return Vec::new();
    }
    one(pattern(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    ))
}

pub fn percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or_default();
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Vec::new();
    }
    one(pattern(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    ))
}

pub fn port_number(port: i64) -> Option<String> {
    (!(1..=65535).contains(&port)).then(|| "must be between 1 and 65535, inclusive".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_name_may_end_in_a_dash() {
        assert!(NameRule::Subdomain.complaints("web-", true).is_empty());
        assert!(!NameRule::Subdomain.complaints("web-", false).is_empty());
        assert!(
            NameRule::PathSegment
                .complaints("system:x", false)
                .is_empty()
        );
    }

    #[test]
    fn what_is_wrong_with_a_label_key() {
        assert!(qualified_name("example.com/My.name").is_empty());
        assert_eq!(
            qualified_name("/x"),
            ["prefix part must be non-empty".to_owned()]
        );
        assert_eq!(
            qualified_name("a b"),
            ["name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')".to_owned()]
        );
    }

    #[test]
    fn dots_in_a_label_are_named() {
        assert_eq!(label("a.b"), ["must not contain dots".to_owned()]);
        assert!(label_1035("1a").len() == 1 && label("1a").is_empty());
    }

    #[test]
    fn addresses_and_networks() {
        assert_eq!(ip("010.0.0.1"), ["must not have leading 0s".to_owned()]);
        assert!(ip("10.0.0").len() == 1 && ip("::1").is_empty());
        assert!(cidr("10.0.0.0/33").len() == 1 && cidr("2001:db8::/64").is_empty());
        assert_eq!(
            cidr("10.0.0.1/24"),
            ["must not have bits set beyond the prefix length".to_owned()]
        );
    }
}
