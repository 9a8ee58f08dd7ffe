//! Durations and moments.

use cel::{ExecutionError, Value};
use jiff::{SignedDuration, Timestamp, Zoned};
use plimsoll_golang::GoDuration;

use super::{Call, Found, error, string, text, unfit};
use crate::time;
use crate::values::{Moment, Span};

const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MILLISECOND;

pub const FUNCTIONS: &[(&str, Call)] = &[
    ("duration", |args| match args.first() {
        Some(value) if Span::of(value).is_some() => Ok(value.clone()),
        Some(Value::Int(nanos)) => Ok(Span(*nanos).value()),
        _ => GoDuration::parse(text(args, 0)?)
            .ok()
            .map(GoDuration::nanos)
            .map(|nanos| Span(nanos).value())
            .ok_or_else(|| unconvertible("Duration")),
    }),
    ("timestamp", |args| match args.first() {
        Some(value) if Moment::of(value).is_some() => Ok(value.clone()),
        Some(Value::Int(seconds)) => Timestamp::from_second(*seconds)
            .map(|moment| Moment(moment).value())
            .map_err(|_| error("timestamp", "range error")),
        _ => time::timestamp(text(args, 0)?)
            .map(|moment| Moment(moment).value())
            .ok_or_else(|| unconvertible("Timestamp")),
    }),
    ("getFullYear", |args| {
        Ok(Value::Int(clock(args)?.year().into()))
    }),
    ("getMonth", |args| {
        Ok(Value::Int(i64::from(clock(args)?.month()) - 1))
    }),
    ("getDayOfYear", |args| {
        Ok(Value::Int(i64::from(clock(args)?.day_of_year()) - 1))
    }),
    ("getDayOfMonth", |args| {
        Ok(Value::Int(i64::from(clock(args)?.day()) - 1))
    }),
    ("getDate", |args| Ok(Value::Int(clock(args)?.day().into()))),
    ("getDayOfWeek", |args| {
        Ok(Value::Int(
            clock(args)?.weekday().to_sunday_zero_offset().into(),
        ))
    }),
    ("getHours", |args| {
        part(args, 3_600 * SECOND, |clock| clock.hour().into())
    }),
    ("getMinutes", |args| {
        part(args, 60 * SECOND, |clock| clock.minute().into())
    }),
    ("getSeconds", |args| {
        part(args, SECOND, |clock| clock.second().into())
    }),
    ("getMilliseconds", |args| {
        part(args, MILLISECOND, |clock| clock.millisecond().into())
    }),
];

pub fn string_of(value: &Value) -> Found {
    if let Some(moment) = Moment::of(value) {
        return Ok(string(moment.0.to_string()));
    }
    let span = Span::of(value).ok_or_else(unfit)?;
    let (whole, rest) = (span.0 / SECOND, (span.0 % SECOND).unsigned_abs());
    let sign = if span.0 < 0 && whole == 0 { "-" } else { "" };
    let shown = format!("{sign}{whole}.{rest:09}");
    let shown = shown.trim_end_matches('0').trim_end_matches('.');
    Ok(string(format!("{shown}s")))
}

pub fn int_of(value: &Value) -> Found {
    match (Moment::of(value), Span::of(value)) {
        (Some(moment), _) => Ok(Value::Int(moment.0.as_second())),
        (_, Some(span)) => Ok(Value::Int(span.0)),
        _ => Err(unfit()),
    }
}

pub fn sum_of(items: &[Value]) -> Found {
    let mut total = 0_i64;
    for item in items {
        let span = Span::of(item).ok_or_else(unfit)?;
        total = total.checked_add(span.0).ok_or_else(overflow)?;
    }
    Ok(Span(total).value())
}

/// A moment or a span, less another.
pub fn taken(args: &[Value]) -> Found {
    if let [one, other] = args
        && let (Some(one), Some(other)) = (Moment::of(one), Moment::of(other))
    {
        let between = one.0.duration_since(other.0).as_nanos();
        return i64::try_from(between)
            .map(|nanos| Span(nanos).value())
            .map_err(|_| overflow());
    }
    added(args, -1)
}

fn overflow() -> ExecutionError {
    error("", "integer overflow")
}

/// Whatever is wrong with a text, it is told in these words.
fn unconvertible(to: &str) -> ExecutionError {
    let words = format!("type conversion error from 'string' to 'google.protobuf.{to}'");
    error("", words)
}

fn clock(args: &[Value]) -> Result<Zoned, ExecutionError> {
    let moment = args.first().and_then(Moment::of).ok_or_else(unfit)?;
    let zone = match args.get(1) {
        Some(_) => Some(text(args, 1)?),
        None => None,
    };
    time::in_zone(moment.0, zone).ok_or_else(|| {
        error(
            "",
            format!("unknown time zone {}", zone.unwrap_or_default()),
        )
    })
}

/// Of a duration how often the unit is in it, of a moment what clocks show.
fn part(args: &[Value], unit: i64, shown: fn(&Zoned) -> i64) -> Found {
    match args.first().and_then(Span::of) {
        Some(span) => Ok(Value::Int(span.0 / unit)),
        None => Ok(Value::Int(shown(&clock(args)?))),
    }
}

/// With the second added, or taken away.
pub fn added(args: &[Value], sign: i64) -> Found {
    let [one, other] = args else {
        return Err(unfit());
    };
    // A moment may stand on either side of a sum.
    let (one, other) = if Span::of(one).is_some() && Moment::of(other).is_some() {
        (other, one)
    } else {
        (one, other)
    };
    let more = Span::of(other).ok_or_else(unfit)?.0;
    let more = more.checked_mul(sign).ok_or_else(overflow)?;
    if let Some(span) = Span::of(one) {
        let sum = span.0.checked_add(more).ok_or_else(overflow)?;
        return Ok(Span(sum).value());
    }
    let moment = Moment::of(one).ok_or_else(unfit)?;
    let sum = moment.0.checked_add(SignedDuration::from_nanos(more));
    sum.map(|moment| Moment(moment).value())
        .map_err(|_| overflow())
}
