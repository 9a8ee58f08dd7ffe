use super::*;
use proptest::prelude::*;

fn at(knob: Knob) -> Target {
    Target::cgroup(&"/a".into(), knob)
}

fn io_at(knob: IoKnob) -> Target {
    let device = BlockDevice { major: 8, minor: 0 };
    at(Knob::Io { device, knob })
}

fn quota(quota_us: Option<u64>, period_us: Option<u64>) -> Value {
    Value::Quota {
        quota_us,
        period_us,
    }
}

fn line(text: &str) -> Value {
    Value::Line(text.into())
}

/// A file's text, its value, and what is written for this value.
#[track_caller]
fn check(target: Target, form: Form, text: &str, value: Value, written: &str) {
    let found = parse(&target, form, text.as_bytes(), None);
    assert_eq!(found.as_ref(), Some(&value), "{target:?} {text:?}");
    let pieces = render(&target, form, &value, found.as_ref());
    assert_eq!(
        pieces,
        [Piece::Main(written.to_owned())],
        "{target:?} {text:?}"
    );
}

#[test]
fn files_and_values() {
    use Form::{V1, V2};
    use Value::{Bytes, Number, Shares, Switch, Weight};
    check(at(Knob::CpuShares), V1, "1024\n", Shares(1024), "1024");
    check(at(Knob::CpuShares), V2, "39\n", Weight(39), "39");
    let limited = quota(Some(5000), Some(100_000));
    check(
        at(Knob::CpuQuota),
        V2,
        "5000 100000\n",
        limited,
        "5000 100000",
    );
    let free = quota(None, Some(50_000));
    check(at(Knob::CpuQuota), V2, "max 50000\n", free, "max 50000");
    check(at(Knob::CpuBurst), V2, "0\n", Number(0), "0");
    check(at(Knob::GroupIdentity), V1, "-1\n", Number(-1), "-1");
    check(at(Knob::CpuIdle), V2, "1\n", Switch(true), "1");
    let cpus = Value::Cpus([0, 1, 3].into_iter().collect());
    check(at(Knob::Cpuset), V2, "0-1,3\n", cpus, "0-1,3");
    let none = Value::Cpus(Default::default());
    check(at(Knob::Cpuset), V2, "\n", none, "\n");
    check(at(Knob::MemoryHigh), V2, "max\n", Bytes(None), "max");
    check(at(Knob::MemoryMin), V2, "4096\n", Bytes(Some(4096)), "4096");
    let largest = "9223372036854771712\n";
    check(at(Knob::MemoryMax), V1, largest, Bytes(None), "-1");
    check(at(Knob::Freeze), V1, "FREEZING\n", Switch(true), "FROZEN");
    check(at(Knob::Freeze), V2, "0\n", Switch(false), "0");
}

#[test]
fn values_of_devices() {
    use Form::{V1, V2};
    use Value::{Bytes, Number};
    let max = "8:16 rbps=1 wbps=2 riops=3 wiops=4\n8:0 rbps=max wbps=7 riops=max wiops=max\n";
    check(
        io_at(IoKnob::WriteBps),
        V2,
        max,
        Bytes(Some(7)),
        "8:0 wbps=7",
    );
    check(io_at(IoKnob::ReadBps), V2, max, Bytes(None), "8:0 rbps=max");
    check(
        io_at(IoKnob::ReadIops),
        V2,
        "",
        Bytes(None),
        "8:0 riops=max",
    );
    check(
        io_at(IoKnob::ReadBps),
        V1,
        "8:0 512\n",
        Bytes(Some(512)),
        "8:0 512",
    );
    check(io_at(IoKnob::ReadBps), V1, "8:16 5\n", Bytes(None), "8:0 0");
    let weights = "default 100\n8:0 200\n";
    check(io_at(IoKnob::Weight), V2, weights, Number(200), "8:0 200");
    check(
        io_at(IoKnob::Weight),
        V2,
        "default 100\n",
        line("default"),
        "8:0 default",
    );
    check(
        io_at(IoKnob::CostQos),
        V2,
        "8:0 enable=1 rpct=95.00\n",
        line("enable=1 rpct=95.00"),
        "8:0 enable=1 rpct=95.00",
    );
    check(io_at(IoKnob::CostQos), V2, "", line(""), "8:0 enable=0");
    check(io_at(IoKnob::CostModel), V2, "", line(""), "8:0 ctrl=auto");
}

#[test]
fn resctrl_and_machine() {
    let resctrl = |knob| Target::Resctrl {
        group: "BE".into(),
        knob,
    };
    let schemata = "    MB:0=100;1=100\n    L3:0=ff;1=f0\n";
    check(
        resctrl(ResctrlKnob::L3),
        Form::V1,
        schemata,
        line("0=ff;1=f0"),
        "L3:0=ff;1=f0\n",
    );
    check(
        resctrl(ResctrlKnob::MemoryBandwidth),
        Form::V1,
        schemata,
        line("0=100;1=100"),
        "MB:0=100;1=100\n",
    );
    let tasks = resctrl(ResctrlKnob::Tasks);
    let has = parse(&tasks, Form::V1, b"1\n22\n", None).unwrap();
    let wanted = Value::Ids([22, 3, 1, 4].into());
    assert_eq!(
        render(&tasks, Form::V1, &wanted, Some(&has)),
        [Piece::Append("3".into()), Piece::Append("4".into())]
    );
    let feature = Target::Sysctl(Sysctl::SchedFeature("ID_IDLE_AVG".into()));
    let words = "GENTLE_FAIR_SLEEPERS NO_ID_IDLE_AVG NO_LATENCY\n";
    check(
        feature,
        Form::V1,
        words,
        Value::Switch(false),
        "NO_ID_IDLE_AVG",
    );
    check(
        Target::Sysctl(Sysctl::MinFreeKbytes),
        Form::V1,
        "67584\n",
        Value::Number(67584),
        "67584",
    );
}

#[test]
fn nonsense_has_no_value() {
    let weight = at(Knob::CpuShares);
    for text in ["", "a", "-1", "99999999999999999999999"] {
        assert_eq!(
            parse(&weight, Form::V2, text.as_bytes(), None),
            None,
            "{text}"
        );
    }
    assert_eq!(
        parse(&at(Knob::Cpuset), Form::V2, b"0-4000000000", None),
        None
    );
    assert_eq!(parse(&at(Knob::CpuQuota), Form::V2, b"", None), None);
    assert_eq!(domains(ResctrlKnob::L3, "0=zz"), None);
}

#[test]
fn a_period_that_was_found_stays() {
    let has = quota(Some(5000), Some(50_000));
    let pieces = render(
        &at(Knob::CpuQuota),
        Form::V2,
        &quota(Some(9000), None),
        Some(&has),
    );
    assert_eq!(pieces, [Piece::Main("9000 50000".into())]);
}

proptest! {
    /// On v1, what two files say between two writes is never stricter than both ends.
    #[test]
    fn no_step_between_is_stricter_than_both_ends(
        had in prop::option::of(1000u64..500_000), had_period in 1000u64..1_000_000,
        new in prop::option::of(1000u64..500_000), new_period in 1000u64..1_000_000,
    ) {
        let has = quota(had, Some(had_period));
        let pieces = render(&at(Knob::CpuQuota), Form::V1, &quota(new, Some(new_period)), Some(&has));
        let ratio = |quota: Option<u64>, period: u64| quota.map_or(f64::INFINITY, |quota| quota as f64 / period as f64);
        let least = ratio(had, had_period).min(ratio(new, new_period));
        let through = between(&pieces, Some(&has));
        prop_assert_eq!(through.len() + 1, pieces.len());
        let (mut quota_now, mut period_now) = (had, had_period);
        for piece in pieces {
            match piece {
                Piece::Main(text) => quota_now = text.parse().ok(),
                Piece::Period(text) => period_now = text.parse().unwrap(),
                other => panic!("{other:?}"),
            }
            prop_assert!(ratio(quota_now, period_now) >= least * (1.0 - 1e-9));
            let now = quota(quota_now, Some(period_now));
            prop_assert!(through.contains(&now) || now == quota(new, Some(new_period)));
        }
        prop_assert_eq!((quota_now, period_now), (new, new_period));
    }

    #[test]
    fn any_text_is_read_without_harm(text in ".{0,80}") {
        for knob in [Knob::CpuShares, Knob::CpuQuota, Knob::Cpuset, Knob::MemoryMax, Knob::Freeze, Knob::GroupIdentity] {
            for form in [Form::V1, Form::V2] {
                let _ = parse(&at(knob), form, text.as_bytes(), Some(text.as_bytes()));
            }
        }
        let _ = domains(ResctrlKnob::MemoryBandwidth, &text);
    }
}
