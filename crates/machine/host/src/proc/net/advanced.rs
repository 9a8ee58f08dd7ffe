//! The TCP counters that a report names one by one: `Tcp` of `net/snmp` and `TcpExt` of `net/netstat`.

use crate::Result;
use crate::parse::{self, Malformed};

/// The kernel's field names in report order. The label value of a report is the name in lower case.
pub const ADVANCED_TCP_NAMES: [&str; 99] = [
    "RtoAlgorithm",
    "RtoMin",
    "RtoMax",
    "MaxConn",
    "ActiveOpens",
    "PassiveOpens",
    "AttemptFails",
    "EstabResets",
    "CurrEstab",
    "InSegs",
    "OutSegs",
    "RetransSegs",
    "InErrs",
    "OutRsts",
    "InCsumErrors",
    "EmbryonicRsts",
    "SyncookiesSent",
    "SyncookiesRecv",
    "SyncookiesFailed",
    "PruneCalled",
    "RcvPruned",
    "OfoPruned",
    "OutOfWindowIcmps",
    "LockDroppedIcmps",
    "TW",
    "TWRecycled",
    "TWKilled",
    "TCPTimeWaitOverflow",
    "TCPTimeouts",
    "TCPSpuriousRTOs",
    "TCPLossProbes",
    "TCPLossProbeRecovery",
    "TCPRenoRecoveryFail",
    "TCPSackRecoveryFail",
    "TCPRenoFailures",
    "TCPSackFailures",
    "TCPLossFailures",
    "DelayedACKs",
    "DelayedACKLocked",
    "DelayedACKLost",
    "ListenOverflows",
    "ListenDrops",
    "TCPHPHits",
    "TCPPureAcks",
    "TCPHPAcks",
    "TCPRenoRecovery",
    "TCPSackRecovery",
    "TCPSACKReneging",
    "TCPFACKReorder",
    "TCPSACKReorder",
    "TCPRenoReorder",
    "TCPTSReorder",
    "TCPFullUndo",
    "TCPPartialUndo",
    "TCPDSACKUndo",
    "TCPLossUndo",
    "TCPFastRetrans",
    "TCPSlowStartRetrans",
    "TCPLostRetransmit",
    "TCPRetransFail",
    "TCPRcvCollapsed",
    "TCPDSACKOldSent",
    "TCPDSACKOfoSent",
    "TCPDSACKRecv",
    "TCPDSACKOfoRecv",
    "TCPAbortOnData",
    "TCPAbortOnClose",
    "TCPAbortOnMemory",
    "TCPAbortOnTimeout",
    "TCPAbortOnLinger",
    "TCPAbortFailed",
    "TCPMemoryPressures",
    "TCPMemoryPressuresChrono",
    "TCPSACKDiscard",
    "TCPDSACKIgnoredOld",
    "TCPDSACKIgnoredNoUndo",
    "TCPMD5NotFound",
    "TCPMD5Unexpected",
    "TCPMD5Failure",
    "TCPSackShifted",
    "TCPSackMerged",
    "TCPSackShiftFallback",
    "TCPBacklogDrop",
    "PFMemallocDrop",
    "TCPMinTTLDrop",
    "TCPDeferAcceptDrop",
    "IPReversePathFilter",
    "TCPReqQFullDoCookies",
    "TCPReqQFullDrop",
    "TCPFastOpenActive",
    "TCPFastOpenActiveFail",
    "TCPFastOpenPassive",
    "TCPFastOpenPassiveFail",
    "TCPFastOpenListenOverflow",
    "TCPFastOpenCookieReqd",
    "TCPSynRetrans",
    "TCPOrigDataSent",
    "PAWSActive",
    "PAWSEstab",
];

/// How many of the names come from `net/snmp`; the others come from `net/netstat`.
pub const FROM_SNMP: usize = 15;

/// Values in the order of [`ADVANCED_TCP_NAMES`]; zero where this kernel lacks the field. Signed because MaxConn is -1
/// for "no limit".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdvancedTcp {
    pub values: [i64; 99],
}

impl Default for AdvancedTcp {
    fn default() -> Self {
        Self { values: [0; 99] }
    }
}

/// Both files in one step, for callers that have both texts.
pub fn parse_advanced_tcp(
    snmp: &[u8],
    netstat: &[u8],
    out: &mut AdvancedTcp,
) -> Result<(), Malformed> {
    parse_snmp(snmp, out)?;
    parse_netstat(netstat, out)
}

/// Fills the first [`FROM_SNMP`] values.
pub fn parse_snmp(text: &[u8], out: &mut AdvancedTcp) -> Result<(), Malformed> {
    let text = parse::whole_lines(text)?;
    let (names, values) = (
        &ADVANCED_TCP_NAMES[..FROM_SNMP],
        &mut out.values[..FROM_SNMP],
    );
    parse_table(text, b"Tcp:", names, values)
}

/// Fills the values after the first [`FROM_SNMP`].
pub fn parse_netstat(text: &[u8], out: &mut AdvancedTcp) -> Result<(), Malformed> {
    let text = parse::whole_lines(text)?;
    let (names, values) = (
        &ADVANCED_TCP_NAMES[FROM_SNMP..],
        &mut out.values[FROM_SNMP..],
    );
    parse_table(text, b"TcpExt:", names, values)
}

/// Bytes of IP packets that a network namespace has received and sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IpOctets {
    pub received: u64,
    pub sent: u64,
}

/// `IpExt` of `net/netstat`; zero where the kernel lacks the field.
pub fn parse_ip_octets(text: &[u8]) -> Result<IpOctets, Malformed> {
    let text = parse::whole_lines(text)?;
    let mut values = [0; 2];
    parse_table(text, b"IpExt:", &["InOctets", "OutOctets"], &mut values)?;
    let [received, sent] = values.map(i64::cast_unsigned);
    Ok(IpOctets { received, sent })
}

/// Each protocol has two lines that start with its name: the field names, then the values.
fn parse_table(
    text: &[u8],
    protocol: &[u8],
    names: &[&str],
    values: &mut [i64],
) -> Result<(), Malformed> {
    values.fill(0);
    let mut lines = parse::numbered(text).filter(|(_, line)| line.starts_with(protocol));
    let Some((above, heading)) = lines.next() else {
        return Ok(());
    };
    let (index, line) = lines.next().ok_or_else(|| Malformed::at(above, heading))?;
    let bad = || Malformed::at(index, line);
    let mut fields = parse::words(heading).skip(1);
    let mut found = parse::words(line).skip(1);
    // Kernels keep the report's order for the most part, so the search begins after the last match.
    let mut guess = 0;
    loop {
        let (field, value) = match (fields.next(), found.next()) {
            (Some(field), Some(value)) => (field, value),
            (None, None) => return Ok(()),
            _ => return Err(bad()),
        };
        let value = signed(value).ok_or_else(bad)?;
        let is = |at: &usize| names[*at].as_bytes() == field;
        let place = (guess..names.len())
            .find(is)
            .or_else(|| (0..guess).find(is));
        if let Some(at) = place {
            values[at] = value;
            guess = at + 1;
        }
    }
}

/// Counters are unsigned longs: one past the signed range can only be a wrapped negative.
fn signed(word: &[u8]) -> Option<i64> {
    parse::i64(word).or_else(|| parse::u64(word).map(u64::cast_signed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(out: &AdvancedTcp, name: &str) -> i64 {
        let at = ADVANCED_TCP_NAMES.iter().position(|n| *n == name).unwrap();
        out.values[at]
    }

    #[test]
    fn names_are_distinct() {
        let mut names = ADVANCED_TCP_NAMES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 99);
        assert_eq!(ADVANCED_TCP_NAMES[FROM_SNMP], "EmbryonicRsts");
    }

    #[test]
    fn both_files() {
        let snmp = b"Ip: Forwarding DefaultTTL\nIp: 1 64\n\
            Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens\n\
            Tcp: 1 200 120000 -1 9 8\nUdp: InDatagrams\nUdp: 5\n";
        let netstat = b"TcpExt: SyncookiesSent NewInThisKernel PAWSEstab TW\n\
            TcpExt: 3 77 4 5\nIpExt: InOctets\nIpExt: 12\n";
        let mut out = AdvancedTcp::default();
        out.values[98] = 1234;
        parse_advanced_tcp(snmp, netstat, &mut out).unwrap();
        assert_eq!(value(&out, "MaxConn"), -1);
        assert_eq!(value(&out, "PassiveOpens"), 8);
        assert_eq!(value(&out, "SyncookiesSent"), 3);
        assert_eq!(value(&out, "PAWSEstab"), 4);
        assert_eq!(value(&out, "TW"), 5);
        assert_eq!(out.values.iter().filter(|v| **v != 0).count(), 9);
    }

    #[test]
    fn bytes_of_ip() {
        let netstat = b"TcpExt: InOctets\nTcpExt: 9\n\
            IpExt: InNoRoutes InOctets OutOctets InMcastOctets\nIpExt: 1 4750867351 18446744073709551615 4\n";
        let found = parse_ip_octets(netstat).unwrap();
        assert_eq!((found.received, found.sent), (4_750_867_351, u64::MAX));
        assert_eq!(
            parse_ip_octets(b"TcpExt: TW\nTcpExt: 9\n").unwrap(),
            IpOctets::default()
        );
        assert!(parse_ip_octets(b"IpExt: InOctets\nIpExt: x\n").is_err());
    }

    #[test]
    fn columns_that_do_not_match() {
        let mut out = AdvancedTcp::default();
        let error = parse_snmp(b"Tcp: RtoMin RtoMax\nTcp: 1\n", &mut out).unwrap_err();
        assert_eq!((error.line, &*error.text), (2, "Tcp: 1"));
        assert!(parse_snmp(b"Tcp: RtoMin\n", &mut out).is_err());
        assert!(parse_snmp(b"Tcp: RtoMin\nTcp: x\n", &mut out).is_err());
        assert!(parse_snmp(b"", &mut out).is_ok());
    }

    proptest! {
        #[test]
        fn any_table_survives(values in prop::collection::vec(0_i64..i64::MAX, 84), turn in 0_usize..84) {
            let order: Vec<usize> = (0..84).map(|at| (at + turn) % 84).collect();
            let names: Vec<&str> = order.iter().map(|at| ADVANCED_TCP_NAMES[FROM_SNMP + at]).collect();
            let texts: Vec<String> = order.iter().map(|at| values[*at].to_string()).collect();
            let text = format!("TcpExt: {}\nTcpExt: {}\n", names.join(" "), texts.join(" "));
            let mut out = AdvancedTcp::default();
            parse_netstat(text.as_bytes(), &mut out).unwrap();
            prop_assert_eq!(&out.values[FROM_SNMP..], values.as_slice());
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let mut out = AdvancedTcp::default();
            let _ = parse_snmp(&text, &mut out);
            let _ = parse_netstat(&text, &mut out);
            let _ = parse_ip_octets(&text);
        }
    }
}
