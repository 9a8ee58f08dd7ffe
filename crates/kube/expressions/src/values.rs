//! Values that Kubernetes adds to the language.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use cel::Value;
use cel::objects::Opaque;
use plimsoll_api::quantity::Quantity;

use crate::types::Type;
pub use crate::version::Version;

macro_rules! opaque {
    ($kind:ty, $name:literal) => {
        impl Opaque for $kind {
            fn runtime_type_name(&self) -> &'static str {
                $name
            }
        }

        impl $kind {
            pub fn of(value: &Value) -> Option<&Self> {
                match value {
                    Value::Opaque(opaque) => opaque.downcast_ref(),
                    _ => None,
                }
            }

            pub fn value(self) -> Value {
                Value::Opaque(Arc::new(self))
            }
        }
    };
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amount(pub Quantity);
opaque!(Amount, "kubernetes.Quantity");

/// Nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub i64);
opaque!(Span, "google.protobuf.Duration");

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub jiff::Timestamp);
opaque!(Moment, "google.protobuf.Timestamp");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(pub IpAddr);
opaque!(Address, "net.IP");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    pub address: IpAddr,
    pub length: u8,
}
opaque!(Network, "net.CIDR");

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    pub scheme: String,
    pub host: String,
    /// As it was written, escaped where that is needed.
    pub path: String,
    pub query: BTreeMap<String, Vec<String>>,
}
opaque!(Url, "kubernetes.URL");

/// A format by its name; it says what is wrong with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format(pub &'static str);
opaque!(Format, "kubernetes.NamedFormat");

opaque!(Version, "kubernetes.Semver");

/// A type, as expressions compare it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeName(pub String);
opaque!(TypeName, "type");

impl TypeName {
    /// Without what it is made of: all lists are of one type when an expression is computed.
    pub fn of_type(kind: &Type) -> Self {
        Self(match kind {
            Type::List(_) => "list".to_owned(),
            Type::Map(..) | Type::Object(_) => "map".to_owned(),
            Type::Optional(_) => "optional_type".to_owned(),
            Type::Type(_) => "type".to_owned(),
            Type::Null => "null_type".to_owned(),
            Type::Duration => "google.protobuf.Duration".to_owned(),
            Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
            plain => plain.to_string(),
        })
    }
}

/// Without superfluous zeros.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || text.len() > 1 && text.starts_with('0') {
        return None;
    }
    text.parse().ok()
}

impl Network {
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let length = u8::try_from(number(length)?).ok()?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let mapped = matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
        (length <= longest && !mapped).then_some(Self { address, length })
    }

    pub fn masked(self) -> Self {
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.length))
                    .unwrap_or(0);
                IpAddr::V4((u32::from(address) & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.length))
                    .unwrap_or(0);
                IpAddr::V6((u128::from(address) & mask).into())
            }
        };
        Self { address, ..self }
    }

    pub fn contains(self, address: IpAddr) -> bool {
        let other = Self {
            address,
            length: self.length,
        };
        address.is_ipv4() == self.address.is_ipv4() && other.masked() == self.masked()
    }

    pub fn contains_network(self, other: Self) -> bool {
        other.length >= self.length && self.contains(other.masked().address)
    }
}

impl Url {
    /// An absolute address or an absolute path, as requests to servers have them.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.chars().any(|letter| letter.is_ascii_control()) {
            return None;
        }
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
            _ if text.starts_with('/') => (String::new(), text),
            _ => return None,
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) if !scheme.is_empty() => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            _ if rest.starts_with('/') => ("", rest),
            // `mailto:a@b`: opaque, without a path.
            _ => ("", ""),
        };
        let host = authority.rsplit('@').next().unwrap_or_default();
        let port = host
            .rsplit_once(':')
            .filter(|(name, _)| !name.contains(':') || name.ends_with(']'));
        let bad_port =
            port.is_some_and(|(_, port)| !port.bytes().all(|byte| byte.is_ascii_digit()));
        if bad_port || host.contains([' ', '<', '>', '"']) || !is_escaped_well(path) {
            return None;
        }
        Some(Self {
            scheme,
            host: host.to_owned(),
            path: escaped(path),
            query: read_query(query),
        })
    }

    pub fn host_name(&self) -> &str {
        match self
            .host
            .strip_prefix('[')
            .and_then(|host| host.split_once(']'))
        {
            Some((name, _)) => name,
            None => self.host.split(':').next().unwrap_or_default(),
        }
    }

    pub fn port(&self) -> &str {
        let after_name = self.host.rfind(']').map_or(0, |end| end + 1);
        let rest = &self.host[after_name..];
        rest.rsplit_once(':').map_or("", |(_, port)| port)
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
}

fn is_escaped_well(text: &str) -> bool {
    text.split('%').skip(1).all(|part| {
        let code = part.as_bytes().get(..2);
        code.is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit))
    })
}

fn escaped(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        let fine = byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@%!'()*[]".contains(&byte);
        if fine {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = text
            .get(at + 1..at + 3)
            .and_then(|code| u8::from_str_radix(code, 16).ok());
        match (bytes[at], code) {
            (b'%', Some(code)) => {
                out.push(code);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn read_query(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut query: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pair in text
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.contains(';'))
    {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        query
            .entry(unescaped(name))
            .or_default()
            .push(unescaped(value));
    }
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_parts() {
        let url = Url::parse("https://u@example.com:80/a b?q=1&q=2%20x").unwrap();
        assert_eq!(
            (url.scheme.as_str(), url.host_name(), url.port()),
            ("https", "example.com", "80")
        );
        assert_eq!(url.path, "/a%20b");
        assert_eq!(url.query["q"], ["1", "2 x"]);
        let url = Url::parse("http://[::1]:8080").unwrap();
        assert_eq!(
            (url.host_name(), url.port(), url.path.as_str()),
            ("::1", "8080", "")
        );
        assert!(Url::parse("/path").is_some());
        for bad in ["not a url", "", "../x", "http://a:b/", "http://a/%zz"] {
            assert!(Url::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn networks_contain_addresses() {
        let network = Network::parse("10.0.0.0/24").unwrap();
        assert!(network.contains("10.0.0.5".parse().unwrap()));
        assert!(!network.contains("10.0.1.5".parse().unwrap()));
        assert!(network.contains_network(Network::parse("10.0.0.128/25").unwrap()));
        assert!(!network.contains_network(Network::parse("10.0.0.0/16").unwrap()));
        assert!(
            Network::parse("0.0.0.0/0")
                .unwrap()
                .contains("1.2.3.4".parse().unwrap())
        );
        assert!(Network::parse("10.0.0.0/33").is_none() && Network::parse("x/1").is_none());
    }
}
