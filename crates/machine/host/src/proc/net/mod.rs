//! The network of a process: interfaces, socket states and protocol counters under `/proc/PID/net`.
//!
//! These files are read every second for every container, so parsers fill what the caller already owns.

mod advanced;
mod sockets;

use std::fmt;
use std::path::PathBuf;

use crate::parse::{self, Malformed};
use crate::{HostRoot, ReadBuf, Result, parse_file};

pub use advanced::{
    ADVANCED_TCP_NAMES, AdvancedTcp, FROM_SNMP, IpOctets, parse_advanced_tcp, parse_ip_octets,
    parse_netstat, parse_snmp,
};
pub use sockets::{TcpStates, UdpStats, parse_tcp, parse_udp};

/// Interfaces whose traffic is counted elsewhere (the peer, the bridge's members) or never leaves the machine.
const IGNORED_PREFIXES: [&str; 4] = ["lo", "veth", "docker", "nerdctl"];

/// Whether reports leave this interface out.
pub fn is_ignored_interface(name: &[u8]) -> bool {
    IGNORED_PREFIXES.iter().any(|prefix| {
        name.get(..prefix.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(prefix.as_bytes()))
    })
}

/// An interface name held in place: the kernel's limit is 15 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct InterfaceName {
    bytes: [u8; 15],
    len: u8,
}

impl InterfaceName {
    /// `None` for names longer than a kernel gives. Whoever owns a network namespace may call an interface anything:
    /// what is not text is shown as question marks.
    pub fn new(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; 15];
        let place = bytes.get_mut(..name.len())?;
        place.copy_from_slice(name);
        if std::str::from_utf8(place).is_err() {
            for byte in place.iter_mut().filter(|byte| !byte.is_ascii()) {
                *byte = b'?';
            }
        }
        Some(Self {
            bytes,
            len: name.len() as u8,
        })
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or("")
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// One line of `net/dev`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interface {
    pub name: InterfaceName,
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub rx_errors: u64,
    pub rx_dropped: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    pub tx_dropped: u64,
}

/// Fills `out` with the interfaces that count, in the kernel's order.
pub fn parse_dev(text: &[u8], out: &mut Vec<Interface>) -> Result<(), Malformed> {
    let text = parse::whole_lines(text)?;
    /// bytes packets errs drop fifo frame compressed multicast, then the same eight for sending.
    const COLUMNS: usize = 16;
    out.clear();
    // The first two lines are the heading.
    for (index, line) in parse::numbered(text).skip_while(|(index, _)| *index < 2) {
        let bad = || Malformed::at(index, line);
        // Values have no colon, so the last one ends the name, even where no blank follows it.
        let at = memchr::memrchr(b':', line).ok_or_else(bad)?;
        let name = parse::trim(&line[..at]);
        let mut values = [0; COLUMNS];
        let mut found = 0;
        for word in parse::words(&line[at + 1..]) {
            let slot = values.get_mut(found).ok_or_else(bad)?;
            *slot = parse::u64(word).ok_or_else(bad)?;
            found += 1;
        }
        if found != COLUMNS {
            return Err(bad());
        }
        if is_ignored_interface(name) {
            continue;
        }
        let [
            rx_bytes,
            rx_packets,
            rx_errors,
            rx_dropped,
            _,
            _,
            _,
            _,
            tx_bytes,
            tx_packets,
            tx_errors,
            tx_dropped,
            ..,
        ] = values;
        out.push(Interface {
            name: InterfaceName::new(name).ok_or_else(bad)?,
            rx_bytes,
            rx_packets,
            rx_errors,
            rx_dropped,
            tx_bytes,
            tx_packets,
            tx_errors,
            tx_dropped,
        });
    }
    Ok(())
}

/// The files of one network namespace, seen through a process in it.
///
/// They are opened for each reading, not held: an open `net/` file keeps the namespace alive after its last process
/// has ended, and with it the interfaces that should return to the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetFiles {
    dev: PathBuf,
    tcp: PathBuf,
    tcp6: PathBuf,
    udp: PathBuf,
    udp6: PathBuf,
    snmp: PathBuf,
    netstat: PathBuf,
}

impl NetFiles {
    pub fn of(root: &HostRoot, pid: u32) -> Self {
        let dir = root.proc(format!("{pid}/net"));
        Self {
            dev: dir.join("dev"),
            tcp: dir.join("tcp"),
            tcp6: dir.join("tcp6"),
            udp: dir.join("udp"),
            udp6: dir.join("udp6"),
            snmp: dir.join("snmp"),
            netstat: dir.join("netstat"),
        }
    }

    /// `false`: the process has ended, and `out` is empty.
    pub fn interfaces(&self, buf: &mut ReadBuf, out: &mut Vec<Interface>) -> Result<bool> {
        out.clear();
        Ok(parse_file(&self.dev, buf, |text| parse_dev(text, out))?.is_some())
    }

    pub fn tcp(&self, buf: &mut ReadBuf) -> Result<Option<TcpStates>> {
        parse_file(&self.tcp, buf, parse_tcp)
    }

    /// `None` where IPv6 is off, too.
    pub fn tcp6(&self, buf: &mut ReadBuf) -> Result<Option<TcpStates>> {
        parse_file(&self.tcp6, buf, parse_tcp)
    }

    pub fn udp(&self, buf: &mut ReadBuf) -> Result<Option<UdpStats>> {
        parse_file(&self.udp, buf, parse_udp)
    }

    pub fn udp6(&self, buf: &mut ReadBuf) -> Result<Option<UdpStats>> {
        parse_file(&self.udp6, buf, parse_udp)
    }

    /// `false`: the process has ended, and `out` is all zero.
    pub fn advanced_tcp(&self, buf: &mut ReadBuf, out: &mut AdvancedTcp) -> Result<bool> {
        *out = AdvancedTcp::default();
        let snmp = parse_file(&self.snmp, buf, |text| parse_snmp(text, out))?;
        let netstat = parse_file(&self.netstat, buf, |text| parse_netstat(text, out))?;
        Ok(snmp.is_some() || netstat.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    const HEADING: &str = "Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n";

    #[track_caller]
    fn check(lines: &str, expected: Expect) {
        let mut found = Vec::new();
        let text = format!("{HEADING}{lines}");
        let rendered = match parse_dev(text.as_bytes(), &mut found) {
            Ok(()) => found
                .iter()
                .map(|i| {
                    format!(
                        "{} rx {} {} {} {} tx {} {} {} {}\n",
                        i.name.as_str(),
                        i.rx_bytes,
                        i.rx_packets,
                        i.rx_errors,
                        i.rx_dropped,
                        i.tx_bytes,
                        i.tx_packets,
                        i.tx_errors,
                        i.tx_dropped
                    )
                })
                .collect(),
            Err(at) => format!("line {}: {}\n", at.line, at.text),
        };
        expected.assert_eq(&rendered);
    }

    #[test]
    fn interfaces_that_count() {
        check(
            "    lo:    9    9    0    0    0     0          0         0     9     9    0    0    0     0       0          0\n  \
               eth0: 100 2 3 4 5 6 7 8 200 12 13 14 15 16 17 18\n\
             veth12ab: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n\
             docker0: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n\
             nerdctl0: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n\
             ens5:18446744073709551615 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n",
            expect![[r#"
                eth0 rx 100 2 3 4 tx 200 12 13 14
                ens5 rx 18446744073709551615 1 0 0 tx 7 1 0 0
            "#]],
        );
    }

    #[test]
    fn lines_that_make_no_sense() {
        check(
            "eth0: 1 2 3\n",
            expect![[r#"
            line 3: eth0: 1 2 3
        "#]],
        );
        check(
            "eth0: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n",
            expect![[r#"
                line 3: eth0: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
            "#]],
        );
        check(
            "eth0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n",
            expect![[r#"
                line 3: eth0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
            "#]],
        );
    }

    #[test]
    fn names_that_are_not_text() {
        let name = InterfaceName::new(b"w\xff\xc3lan").unwrap();
        assert_eq!(name.as_str(), "w??lan");
        assert_eq!(
            InterfaceName::new("wl\u{e4}n".as_bytes()).unwrap().as_str(),
            "wl\u{e4}n"
        );
        assert_eq!(InterfaceName::new(b"sixteen-letters!"), None);
    }

    #[test]
    fn a_fixture_tree() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("proc/42/net");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(
            dir.join("dev"),
            format!("{HEADING} eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"),
        )
        .unwrap();
        std::fs::write(dir.join("tcp"), "heading\nnot a socket\n").unwrap();
        let root = HostRoot::new(temp.path());
        let mut buf = ReadBuf::default();
        let mut out = Vec::new();
        let files = NetFiles::of(&root, 42);
        assert!(files.interfaces(&mut buf, &mut out).unwrap());
        assert_eq!(out[0].tx_dropped, 12);
        assert_eq!(files.tcp6(&mut buf).unwrap(), None);
        let error = files.tcp(&mut buf).unwrap_err().to_string();
        assert!(error.contains("42/net/tcp: line 2"), "{error}");

        assert!(
            !NetFiles::of(&root, 43)
                .interfaces(&mut buf, &mut out)
                .unwrap()
        );
        assert!(out.is_empty());
    }

    #[test]
    fn this_process() {
        let files = NetFiles::of(&HostRoot::new("/"), std::process::id());
        let mut buf = ReadBuf::default();
        assert!(files.interfaces(&mut buf, &mut Vec::new()).unwrap());
        files.tcp(&mut buf).unwrap();
        files.tcp6(&mut buf).unwrap();
        files.udp(&mut buf).unwrap();
        files.udp6(&mut buf).unwrap();
        assert!(
            files
                .advanced_tcp(&mut buf, &mut AdvancedTcp::default())
                .unwrap()
        );
    }

    proptest! {
        #[test]
        fn any_interface_survives(name in "[a-k][a-z0-9._@-]{0,14}", v: [u64; 16]) {
            prop_assume!(!is_ignored_interface(name.as_bytes()));
            let values: Vec<String> = v.iter().map(u64::to_string).collect();
            let text = format!("{HEADING}{name}: {}\n", values.join(" "));
            let mut out = Vec::new();
            parse_dev(text.as_bytes(), &mut out).unwrap();
            prop_assert_eq!(out.len(), 1);
            prop_assert_eq!(out[0].name.as_str(), name);
            prop_assert_eq!((out[0].rx_bytes, out[0].tx_dropped), (v[0], v[11]));
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = parse_dev(&text, &mut Vec::new());
        }
    }
}
