//! Network interfaces and sockets.

use std::sync::LazyLock;

use plimsoll_host::proc::net::ADVANCED_TCP_NAMES;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use plimsoll_observe::{Sample, sample};

#[derive(Debug, Default, Serialize)]
pub struct Interface {
    name: &'static str,
    rx_bytes: u64,
    rx_packets: u64,
    rx_errors: u64,
    rx_dropped: u64,
    tx_bytes: u64,
    tx_packets: u64,
    tx_errors: u64,
    tx_dropped: u64,
}

impl From<&sample::Interface> for Interface {
    fn from(i: &sample::Interface) -> Self {
        Self {
            name: i.name.as_str(),
            rx_bytes: i.rx_bytes,
            rx_packets: i.rx_packets,
            rx_errors: i.rx_errors,
            rx_dropped: i.rx_dropped,
            tx_bytes: i.tx_bytes,
            tx_packets: i.tx_packets,
            tx_errors: i.tx_errors,
            tx_dropped: i.tx_dropped,
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Network<'a> {
    /// Version 1 repeats the first interface here.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    first: Option<Interface>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<Interface>,
    tcp: Tcp<'a>,
    tcp6: Tcp<'a>,
    udp: Udp,
    udp6: Udp,
    tcp_advanced: AdvancedTcp<'a>,
}

pub fn network(sample: &Sample, repeat_first: bool) -> Network<'_> {
    let network = &sample.network;
    let first = network.interfaces.first().map(Interface::from);
    Network {
        first: repeat_first.then(|| first.unwrap_or_default()),
        interfaces: network.interfaces.iter().map(Interface::from).collect(),
        tcp: Tcp(&network.tcp),
        tcp6: Tcp(&network.tcp6),
        udp: Udp::from(&network.udp),
        udp6: Udp::from(&network.udp6),
        tcp_advanced: AdvancedTcp(&network.advanced_tcp),
    }
}

#[derive(Debug)]
struct Tcp<'a>(&'a [u64; 11]);

const TCP_STATES: [&str; 11] = [
    "Established",
    "SynSent",
    "SynRecv",
    "FinWait1",
    "FinWait2",
    "TimeWait",
    "Close",
    "CloseWait",
    "LastAck",
    "Listen",
    "Closing",
];

impl Serialize for Tcp<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(TCP_STATES.iter().zip(self.0))
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Udp {
    listen: u64,
    dropped: u64,
    rx_queued: u64,
    tx_queued: u64,
}

impl From<&sample::Udp> for Udp {
    fn from(udp: &sample::Udp) -> Self {
        Self {
            listen: udp.listen,
            dropped: udp.dropped,
            rx_queued: udp.rx_queued,
            tx_queued: udp.tx_queued,
        }
    }
}

#[derive(Debug)]
struct AdvancedTcp<'a>(&'a [u64]);

/// Two thirds of a sample's text are these 99 names with zeros behind them whenever the group is off: made once.
static NOT_COUNTED: LazyLock<Option<Box<RawValue>>> = LazyLock::new(|| {
    let zeros = ADVANCED_TCP_NAMES.map(|name| format!("\"{name}\":0"));
    RawValue::from_string(format!("{{{}}}", zeros.join(","))).ok()
});

impl Serialize for AdvancedTcp<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let (true, Some(zeros)) = (self.0.is_empty(), &*NOT_COUNTED) {
            return zeros.serialize(serializer);
        }
        let mut map = serializer.serialize_map(Some(ADVANCED_TCP_NAMES.len()))?;
        for (index, name) in ADVANCED_TCP_NAMES.iter().enumerate() {
            let value = self.0.get(index).copied().unwrap_or(0);
            if *name == "MaxConn" {
                map.serialize_entry(name, &value.cast_signed())?;
            } else {
                map.serialize_entry(name, &value)?;
            }
        }
        map.end()
    }
}
