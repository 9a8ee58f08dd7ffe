//! The formats that a schema may demand of texts and numbers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine;
use regex::Regex;

use super::schema::Type;

#[derive(Debug, Clone, Copy)]
pub enum Format {
    Int32,
    Int64,
    Float,
    Double,
    /// A text that this function accepts.
    Text(fn(&str) -> bool),
}

impl Format {
    /// `None` for those that are not known for the type, which are ignored.
    pub fn find(name: &str, of: Option<Type>) -> Option<Self> {
        match of {
            Some(Type::Integer) => match name {
                "int32" => Some(Self::Int32),
                "int64" => Some(Self::Int64),
                _ => None,
            },
            Some(Type::Number) => match name {
                "float" => Some(Self::Float),
                "double" => Some(Self::Double),
                _ => None,
            },
            None | Some(Type::String) => text_format(&name.replace('-', "")).map(Self::Text),
            Some(_) => None,
        }
    }
}

fn text_format(name: &str) -> Option<fn(&str) -> bool> {
    Some(match name {
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => is_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => |text| text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => |text| text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |text| is_uuid(text, None),
        "uuid3" => |text| is_uuid(text, Some(b'3')),
        "uuid4" => |text| is_uuid(text, Some(b'4')),
        "uuid5" => |text| is_uuid(text, Some(b'5')),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => |text| SSN.is_match(text),
        "hexcolor" => is_hex_color,
        "rgbcolor" => |text| RGB.is_match(text),
        "byte" => is_base64,
        "password" => |_| true,
        "date" => is_date,
        "duration" => is_duration,
        "datetime" => is_date_time,
        "k8sshortname" => |text| text.len() <= 63 && is_name_segment(text),
        "k8slongname" => |text| text.len() <= 253 && text.split('.').all(is_name_segment),
        _ => return None,
    })
}

static SSN: LazyLock<Regex> = LazyLock::new(|| regex(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static RGB: LazyLock<Regex> = LazyLock::new(|| {
    let part = "([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5])";
    regex(&format!(r"^rgb\(\s*{part}\s*,\s*{part}\s*,\s*{part}\s*\)$"))
});
static TIME: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$")
});
static PLAIN_DURATION: LazyLock<Regex> =
    LazyLock::new(|| regex(r"^[+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"));
static WORDY_DURATION: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)([0-9]+)\s*(nanos|ns|micros|us|µs|millis|ms|sec|s|min|m|hr|hours?|h|days?|d|weeks?|wk?)",
    )
});
static LABEL_HOST: LazyLock<Regex> = LazyLock::new(|| {
    let sign = r"[a-zA-Z0-9\p{S}\p{L}]";
    let inner = r"[a-zA-Z0-9\-\p{S}\p{L}]";
    regex(&format!(
        r"^({sign}((-?{sign}{{0,62}})?)|({sign}(({inner}{{0,61}}{sign})?)(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}})$"
    ))
});

fn regex(text: &str) -> Regex {
    // Constants of ours: a test compiles each.
    Regex::new(text).unwrap_or_else(|_| unreachable!("{text}"))
}

fn is_uri(text: &str) -> bool {
    // A URI as a request line may have it: absolute, or a path.
    if text.is_empty() || text.contains(|c: char| c.is_ascii_control() || c == ' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let scheme_fits = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    // An opaque part is fine; a host must not be torn.
    scheme_fits && !rest.is_empty() && (!rest.starts_with("//") || !rest.contains('\\'))
}

fn is_email(text: &str) -> bool {
    let address = match text.rsplit_once('<') {
        Some((_, rest)) => match rest.strip_suffix('>') {
            Some(address) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let is_atom =
        |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c) || !c.is_ascii();
    let dotted = |part: &str| {
        !part.is_empty() && part.chars().all(is_atom) && part.split('.').all(|p| !p.is_empty())
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (dotted(local) || quoted) && dotted(domain)
}

fn is_hostname(text: &str) -> bool {
    LABEL_HOST.is_match(text) && text.len() <= 255 && text.split('.').all(|part| part.len() <= 63)
}

pub fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return false;
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let plain = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    plain && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn is_mac(text: &str) -> bool {
    let (separator, width) = match (text.as_bytes().get(2), text.as_bytes().get(4)) {
        (Some(b':'), _) => (':', 2),
        (Some(b'-'), _) => ('-', 2),
        (_, Some(b'.')) => ('.', 4),
        _ => return false,
    };
    let parts: Vec<&str> = text.split(separator).collect();
    let bytes = parts.len() * width / 2;
    matches!(bytes, 6 | 8 | 20)
        && parts
            .iter()
            .all(|part| part.len() == width && part.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    // Dashes may be left out, but not put elsewhere.
    let mut rest = text;
    for width in [8, 4, 4, 4, 12] {
        let Some(after) = rest.get(width..) else {
            return false;
        };
        if rest[..width].contains('-') {
            return false;
        }
        rest = after.strip_prefix('-').unwrap_or(after);
    }
    let variant_fits = match version {
        Some(b'4' | b'5') => matches!(
            digits.get(16),
            Some(b'8' | b'9' | b'a' | b'b' | b'A' | b'B')
        ),
        _ => true,
    };
    rest.is_empty()
        && digits.len() == 32
        && digits.iter().all(u8::is_ascii_hexdigit)
        && version.is_none_or(|version| digits[12] == version)
        && variant_fits
}

fn without_separators(text: &str) -> String {
    text.chars().filter(|c| !matches!(c, ' ' | '-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = without_separators(text);
    let mut sum = 0;
    for (at, c) in text.chars().enumerate() {
        let digit = match c {
            'X' if at == 9 => 10,
            c => match c.to_digit(10) {
                Some(digit) => digit,
                None => return false,
            },
        };
        sum += (at as u32 + 1) * digit;
    }
    text.len() == 10 && sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let text = without_separators(text);
    let sum: u32 = text
        .chars()
        .enumerate()
        .map(|(at, c)| c.to_digit(10).unwrap_or(99) * if at % 2 == 0 { 1 } else { 3 })
        .sum();
    text.len() == 13 && text.bytes().all(|b| b.is_ascii_digit()) && sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let doubled = |(at, digit): (usize, &u32)| match at % 2 {
        0 => *digit,
        _ if digit * 2 > 9 => digit * 2 - 9,
        _ => digit * 2,
    };
    let sum: u32 = digits.iter().rev().enumerate().map(doubled).sum();
    (13..=16).contains(&digits.len()) && sum.is_multiple_of(10)
}

fn is_hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_base64(text: &str) -> bool {
    !text.is_empty()
        && base64::engine::general_purpose::STANDARD
            .decode(text)
            .is_ok()
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date)
        && TIME
            .captures(time)
            .is_some_and(|found| &found[1] <= "23" && &found[2] <= "59" && &found[3] <= "59")
}

fn is_duration(text: &str) -> bool {
    PLAIN_DURATION.is_match(text) || WORDY_DURATION.is_match(text)
}

fn is_name_segment(text: &str) -> bool {
    let edge =
        |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    edge(text.bytes().next())
        && edge(text.bytes().last())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: &str, good: &[&str], bad: &[&str]) {
        let Some(Format::Text(fits)) = Format::find(format, Some(Type::String)) else {
            panic!("{format} is not known");
        };
        for text in good {
            assert!(fits(text), "{format} {text}");
        }
        for text in bad {
            assert!(!fits(text), "{format} {text}");
        }
    }

    #[test]
    fn texts() {
        check(
            "date-time",
            &["2020-01-01T00:00:00Z", "2020-01-01t10:11:12.5+02:00"],
            &["yesterday", "2020-13-01T00:00:00Z", "2020-01-01"],
        );
        check("date", &["2020-02-29"], &["2021-02-29", "20200101"]);
        check("byte", &["AAAA", "YQ=="], &["***", "", "YQ"]);
        check("ipv4", &["1.2.3.4"], &["1.2.3", "::1"]);
        check("ipv6", &["::1"], &["1.2.3.4"]);
        check("cidr", &["10.0.0.0/8", "fd00::/64"], &["10.0.0.0/33", "x"]);
        check("mac", &["01:23:45:67:89:ab", "0123.4567.89ab"], &["01:23"]);
        check(
            "uri",
            &["http://a.b/c", "/x", "urn:a:b"],
            &["x y", "abc", ""],
        );
        check("email", &["a@b.c", "N <a@b>"], &["a", "a@", "@b"]);
        check("hostname", &["a", "a.example"], &["a_b", "-a", "a..b"]);
        check(
            "uuid4",
            &["f47ac10b-58cc-4372-a567-0e02b2c3d479"],
            &["f47ac10b-58cc-3372-a567-0e02b2c3d479", "x"],
        );
        check("uuid", &["F47AC10B58CC4372A5670E02B2C3D479"], &["f47ac10b"]);
        check("duration", &["5s", "1h2m", "3 days"], &["soon", ""]);
        check("isbn", &["0321751043", "978-0321751041"], &["0321751044"]);
        check("creditcard", &["4012888888881881"], &["4012888888881882"]);
        check("ssn", &["123-45-6789"], &["123"]);
        check("hexcolor", &["#fff", "00ff00"], &["#ff"]);
        check("rgbcolor", &["rgb(1, 2,255)"], &["rgb(1,2,256)"]);
        check("k8s-short-name", &["a-b"], &["A", "a.b", "-a"]);
        check("k8s-long-name", &["a.b-c"], &["a..b"]);
    }

    #[test]
    fn only_of_their_type() {
        let found = Format::find("int32", Some(Type::Integer));
        assert!(matches!(found, Some(Format::Int32)));
        assert!(Format::find("int32", Some(Type::String)).is_none());
        assert!(Format::find("date", Some(Type::Object)).is_none());
    }
}
