//! Addresses and networks: what is wrong with one, in Kubernetes' words.

use super::names::one;
use plimsoll_golang::strconv::quote;

/// An address.
pub fn ip(text: &str) -> Vec<String> {
    if parse_ip(text).is_none() {
        return one("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
    }
    match text.parse() {
        Err(_) => one("must not have leading 0s"),
        Ok(std::net::IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            one("must not be an IPv4-mapped IPv6 address")
        }
        Ok(_) => Vec::new(),
    }
}

/// An address written the one way.
pub fn canonical_ip(text: &str) -> Vec<String> {
    let complaints = ip(text);
    match parse_ip(text) {
        Some(address) if complaints.is_empty() && address.to_string() != text => {
            one(format!("must be in canonical form (\"{address}\")"))
        }
        _ => complaints,
    }
}

/// What is odd about an address that is accepted where older rules hold.
pub fn oddity(text: &str) -> Option<String> {
    let address = parse_ip(text)?;
    let written: Option<std::net::IpAddr> = text.parse().ok();
    let mapped = match written {
        Some(std::net::IpAddr::V6(address)) => address.to_ipv4_mapped(),
        _ => None,
    };
    let (shown, preferred) = (
        quote(text),
        mapped.map_or_else(|| address.to_string(), |mapped| mapped.to_string()),
    );
    if written.is_none() || mapped.is_some() {
        return Some(format!(
            "non-standard IP address {shown} is invalid: use {}",
            quote(&preferred)
        ));
    }
    (address.is_ipv6() && preferred != text).then(|| {
        format!(
            "IPv6 address {shown} should be in RFC 5952 canonical format ({})",
            quote(&preferred)
        )
    })
}

/// What is odd about a network that is accepted.
pub fn cidr_oddity(text: &str) -> Option<String> {
    let (address, bits) = parse_cidr(text)?;
    let canonical = format!("{address}/{bits}");
    (address.is_ipv6() && canonical != text).then(|| {
        format!(
            "IPv6 CIDR value {} should be in RFC 5952 canonical format ({})",
            quote(text),
            quote(&canonical)
        )
    })
}

/// Leading zeros in IPv4 addresses are understood, though not accepted.
pub fn parse_ip(text: &str) -> Option<std::net::IpAddr> {
    text.parse().ok().or_else(|| {
        let mut octets = [0; 4];
        let mut parts = text.split('.');
        for octet in &mut octets {
            let part = parts.next()?;
            if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            *octet = part
                .trim_start_matches('0')
                .parse()
                .or_else(|_| {
                    if part.bytes().all(|byte| byte == b'0') {
                        Ok(0)
                    } else {
                        Err(())
                    }
                })
                .ok()?;
        }
        parts.next().is_none().then(|| octets.into())
    })
}

pub fn cidr(text: &str) -> Vec<String> {
    let Some((address, length)) = parse_cidr(text) else {
        return one("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
    };
    let bits = text.rsplit('/').next().unwrap_or_default();
    let written: Option<std::net::IpAddr> =
        text.split('/').next().and_then(|text| text.parse().ok());
    if written.is_none() || (bits.len() > 1 && bits.starts_with('0')) {
        return one("must not have leading 0s in IP or prefix length");
    }
    let beyond = match address {
        std::net::IpAddr::V4(address) => {
            u32::from(address).checked_shl(length.into()).unwrap_or(0) != 0
        }
        std::net::IpAddr::V6(address) => {
            if address.to_ipv4_mapped().is_some() {
                return one("must not have an IPv4-mapped IPv6 address");
            }
            u128::from(address).checked_shl(length.into()).unwrap_or(0) != 0
        }
    };
    if beyond {
        return one("must not have bits set beyond the prefix length");
    }
    Vec::new()
}

pub fn parse_cidr(text: &str) -> Option<(std::net::IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address = parse_ip(address)?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let length: u8 = bits.parse().ok()?;
    (length <= max && bits.bytes().all(|byte| byte.is_ascii_digit())).then_some((address, length))
}

/// Whether two addresses have their first `bits` in common.
pub fn shares_prefix(a: std::net::IpAddr, b: std::net::IpAddr, bits: u8) -> bool {
    use std::net::IpAddr::{V4, V6};
    let bits = u32::from(bits);
    match (a, b) {
        (V4(a), V4(b)) => (u32::from(a) ^ u32::from(b)).leading_zeros() >= bits,
        (V6(a), V6(b)) => (u128::from(a) ^ u128::from(b)).leading_zeros() >= bits,
        _ => false,
    }
}
