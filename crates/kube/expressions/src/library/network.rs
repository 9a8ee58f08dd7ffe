//! Addresses, networks and URLs.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{ExecutionError, Value};

use super::{Call, error, string, text, unfit};
use crate::values::{Address, Network, Url};

pub const FUNCTIONS: &[(&str, Call)] = &[
    ("ip", |args| match args.first().and_then(Network::of) {
        Some(network) => Ok(Address(network.address).value()),
        None => Ok(Address(address(text(args, 0)?)?).value()),
    }),
    ("isIP", |args| {
        Ok(Value::Bool(address(text(args, 0)?).is_ok()))
    }),
    ("ip.isCanonical", |args| {
        let text = text(args, 0)?;
        Ok(Value::Bool(address(text)?.to_string() == text))
    }),
    ("family", |args| {
        Ok(Value::Int(if own(args)?.is_ipv4() { 4 } else { 6 }))
    }),
    ("isUnspecified", |args| {
        Ok(Value::Bool(own(args)?.is_unspecified()))
    }),
    ("isLoopback", |args| {
        Ok(Value::Bool(own(args)?.is_loopback()))
    }),
    ("isLinkLocalMulticast", |args| {
        Ok(Value::Bool(match own(args)? {
            IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
            IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
        }))
    }),
    ("isLinkLocalUnicast", |args| {
        Ok(Value::Bool(is_link_local(own(args)?)))
    }),
    ("isGlobalUnicast", |args| {
        let address = own(args)?;
        let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
        let special = address.is_unspecified()
            || address.is_loopback()
            || address.is_multicast()
            || broadcast
            || is_link_local(address);
        Ok(Value::Bool(!special))
    }),
    ("cidr", |args| Ok(network(text(args, 0)?)?.value())),
    ("isCIDR", |args| {
        Ok(Value::Bool(Network::parse(text(args, 0)?).is_some()))
    }),
    ("containsIP", |args| {
        let other = match args.get(1).and_then(Address::of) {
            Some(address) => address.0,
            None => address(text(args, 1)?)?,
        };
        Ok(Value::Bool(own_network(args)?.contains(other)))
    }),
    ("containsCIDR", |args| {
        let other = match args.get(1).and_then(Network::of) {
            Some(network) => *network,
            None => network(text(args, 1)?)?,
        };
        Ok(Value::Bool(own_network(args)?.contains_network(other)))
    }),
    ("masked", |args| Ok(own_network(args)?.masked().value())),
    ("prefixLength", |args| {
        Ok(Value::Int(own_network(args)?.length.into()))
    }),
    ("url", |args| {
        let text = text(args, 0)?;
        let words = || {
            let cause = if text.is_empty() {
                "empty url"
            } else {
                "invalid URI for request"
            };
            error(
                "url",
                format!("URL parse error during conversion from string: parse {text:?}: {cause}"),
            )
        };
        Url::parse(text).map(Url::value).ok_or_else(words)
    }),
    ("isURL", |args| {
        Ok(Value::Bool(Url::parse(text(args, 0)?).is_some()))
    }),
    ("getScheme", |args| Ok(string(&url(args)?.scheme))),
    ("getHost", |args| Ok(string(&url(args)?.host))),
    ("getHostname", |args| Ok(string(url(args)?.host_name()))),
    ("getPort", |args| Ok(string(url(args)?.port()))),
    ("getEscapedPath", |args| Ok(string(&url(args)?.path))),
    ("getQuery", |args| {
        let query = url(args)?.query.iter().map(|(name, values)| {
            let values = values.iter().map(string).collect();
            (Key::from(name.clone()), Value::List(Arc::new(values)))
        });
        let map: HashMap<Key, Value> = query.collect();
        Ok(Value::Map(Map { map: Arc::new(map) }))
    }),
];

fn address(text: &str) -> Result<IpAddr, ExecutionError> {
    if text.contains('%') {
        return Err(error(
            "ip",
            format!("IP address {text:?} with zone value is not allowed"),
        ));
    }
    let parsed: IpAddr = text.parse().map_err(|_| {
        error(
            "ip",
            format!(
                "IP Address {text:?} parse error during conversion from string: {}",
                trouble(text)
            ),
        )
    })?;
    match parsed {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => Err(error(
            "ip",
            format!("IPv4-mapped IPv6 address {text:?} is not allowed"),
        )),
        fine => Ok(fine),
    }
}

/// What Go says of an address that is none.
fn trouble(text: &str) -> String {
    let shown = |words: &str| format!("ParseAddr({text:?}): {words}");
    let Some(mark) = text.find(['.', ':', '%']) else {
        return shown("unable to parse IP");
    };
    if text.as_bytes()[mark] != b'.' {
        return shown("unable to parse IP");
    }
    for part in text.split('.') {
        if part.is_empty() {
            return shown("IPv4 field must have at least one digit");
        }
        if !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return shown("unexpected character");
        }
        if part.len() > 1 && part.starts_with('0') {
            return shown("IPv4 field has octet with leading zero");
        }
        if part.parse::<u8>().is_err() {
            return shown("IPv4 field has value >255");
        }
    }
    match text.split('.').count() {
        0..4 => shown("IPv4 address too short"),
        _ => shown("IPv4 address too long"),
    }
}

fn network(text: &str) -> Result<Network, ExecutionError> {
    Network::parse(text).ok_or_else(|| {
        let cause = if text.contains('/') { "bad bits after slash" } else { "no '/'" };
        error(
            "cidr",
            format!(
                "network address parse error during conversion from string: network address: netip.ParsePrefix({text:?}): {cause}"
            ),
        )
    })
}

fn own(args: &[Value]) -> Result<IpAddr, ExecutionError> {
    let own = args.first().and_then(Address::of);
    own.map(|own| own.0).ok_or_else(unfit)
}

fn own_network(args: &[Value]) -> Result<Network, ExecutionError> {
    args.first()
        .and_then(Network::of)
        .copied()
        .ok_or_else(unfit)
}

fn url(args: &[Value]) -> Result<&Url, ExecutionError> {
    args.first().and_then(Url::of).ok_or_else(unfit)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}
