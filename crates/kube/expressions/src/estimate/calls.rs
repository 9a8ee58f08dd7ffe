//! What calls can cost, and how large their results can be.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};

use super::{Estimator, LIST, Range, STRUCT, Step};
use crate::check::qualified;
use crate::signatures;
use crate::types::Type;

const LETTER: f64 = 0.1;
const PATTERN_LETTER: f64 = 0.25;
/// The longest pattern of a named format, and the longest name of one.
const FORMAT_PATTERN: f64 = 128.0;
const FORMAT_NAME: u64 = 64;
/// Bytes of an address.
const ADDRESS: Range = Range::new(4, 16);

pub struct Estimate {
    pub cost: Range,
    pub size: Option<Range>,
}

impl Estimate {
    fn of(cost: Range) -> Self {
        Self { cost, size: None }
    }

    fn sized(cost: Range, size: Range) -> Self {
        Self {
            cost,
            size: Some(size),
        }
    }

    fn list(factor: f64, size: Range) -> Self {
        let call = Range::exactly(1 + LIST);
        Self::sized(size.scaled(factor).plus(call), size)
    }
}

/// The name of the function that is called, and on what it is called. A function may be in a name space.
pub fn resolved(call: &CallExpr) -> (String, Option<&IdedExpr>) {
    let Some(target) = call.target.as_deref() else {
        return (call.func_name.clone(), None);
    };
    if let Some(space) = qualified(&target.expr) {
        let name = format!("{space}.{}", call.func_name);
        if signatures::find(&name).is_some() {
            return (name, None);
        }
    }
    (call.func_name.clone(), Some(target))
}

type Parts<'p> = &'p [IdedExpr];

impl Estimator<'_> {
    pub fn function(
        &mut self,
        part: &IdedExpr,
        name: &str,
        target: Option<&IdedExpr>,
        args: Parts<'_>,
        costs: &[Range],
    ) -> Estimate {
        let sum = costs.iter().fold(Range::ZERO, |sum, cost| sum.plus(*cost));
        match (name, args, costs) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, _, [one, other]) => {
                return Estimate::of(Range::new(one.least, one.plus(*other).most));
            }
            (operators::CONDITIONAL, [_, one, other], [condition, of_one, of_other]) => {
                let size = self.size_or_unknown(one).or(self.size_or_unknown(other));
                if let (Some(one), Some(other)) = (self.entry(one), self.entry(other)) {
                    self.entries.insert(part.id, one.or(other));
                }
                return Estimate::sized(condition.plus(of_one.or(*of_other)), size);
            }
            _ => {}
        }
        let own = self
            .of_lists(name, target, args)
            .or_else(|| self.of_kubernetes(name, target, args))
            .or_else(|| self.of_language(part, name, target, args));
        let mut found = own.unwrap_or(Estimate::of(Range::ONE));
        found.cost = found.cost.plus(sum);
        found
    }

    fn sized(&self, part: &IdedExpr) -> Range {
        self.size_or_unknown(part)
    }

    /// Lists and sets.
    fn of_lists(&self, name: &str, target: Option<&IdedExpr>, args: Parts<'_>) -> Option<Estimate> {
        let is_list = target.is_some_and(|target| {
            matches!(self.kind(target), Type::List(_) | Type::Dyn | Type::Open(_))
        });
        let number = |at: usize, otherwise: u64| match args.get(at).map(|arg| &arg.expr) {
            Some(Expr::Literal(LiteralValue::Int(number))) => {
                u64::try_from(*number.inner()).unwrap_or(0)
            }
            _ => otherwise,
        };
        Some(match (name, target, args) {
            ("sets.contains" | "sets.intersects", _, [one, other]) => {
                let compared = self.sized(one).times(self.sized(other));
                Estimate::of(compared.plus(Range::ONE))
            }
            ("sets.equivalent", _, [one, other]) => {
                let compared = self.sized(one).times(self.sized(other));
                Estimate::of(compared.scaled(2.0).plus(Range::ONE))
            }
            ("slice", Some(list), [_, _]) => {
                // An end before the start is refused for its cost, as by the original.
                let (start, end) = (number(0, 0), number(1, self.sized(list).most));
                Estimate::list(1.0, Range::exactly(end.wrapping_sub(start)))
            }
            ("lists.range", _, [_]) => Estimate::list(1.0, Range::exactly(number(0, u64::MAX))),
            ("reverse", Some(list), []) if is_list => Estimate::list(1.0, self.sized(list)),
            ("flatten", Some(list), args) => {
                let depth = if args.is_empty() {
                    1
                } else {
                    number(0, u64::MAX)
                };
                Estimate::list(depth as f64, self.sized(list))
            }
            ("distinct", Some(list), []) => {
                let size = self.sized(list);
                Estimate::list(2.0, size.times(size))
            }
            ("sort", Some(list), []) | ("@sortByAssociatedKeys", Some(_), [list]) => {
                let compares = match self.kind(list) {
                    Type::List(of)
                        if !matches!(*of, Type::String | Type::Bytes) && !of.is_dyn() =>
                    {
                        2.0
                    }
                    _ => 2.0 + LETTER,
                };
                let size = self.sized(list);
                Estimate::list(compares, size.times(size))
            }
            _ => return None,
        })
    }

    /// What Kubernetes adds to the language.
    fn of_kubernetes(
        &self,
        name: &str,
        target: Option<&IdedExpr>,
        args: Parts<'_>,
    ) -> Option<Estimate> {
        let first = || Some(self.sized(args.first()?));
        Some(match name {
            "check" => Estimate::of(Range::exactly(350_000)),
            "fieldSelector" | "labelSelector" => {
                let length = first()?;
                let parts = length.scaled(0.5).scaled((LIST + STRUCT) as f64);
                let cost = Range::exactly(LIST).plus(length.scaled(LETTER)).plus(parts);
                Estimate::of(cost)
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let target = target?;
                let Some((of, size)) = self.element(target) else {
                    return Some(Estimate::of(self.sized(target).scaled(LETTER)));
                };
                let each = match of {
                    Type::String | Type::Bytes => Range::ONE.plus(size.scaled(LETTER)),
                    _ => Range::ONE,
                };
                Estimate::of(self.sized(target).times(each))
            }
            "url" => Estimate::sized(first()?.scaled(LETTER), first()?),
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let size = self.sized(target?);
                Estimate::sized(size.scaled(LETTER), size)
            }
            "replace" => self.replace(target?, args)?,
            "split" => {
                let size = self.sized(target?);
                let most = match args.get(1).map(|arg| &arg.expr) {
                    // As the original has it, a number that is negative is a large one.
                    Some(Expr::Literal(LiteralValue::Int(number))) => *number.inner() as u64,
                    _ => size.most,
                };
                Estimate::sized(size.scaled(2.0 * LETTER), Range::new(0, most))
            }
            "join" => self.join(target?, args),
            "find" | "findAll" => {
                let size = self.sized(target?);
                let cost = self.pattern(size, first()?);
                Estimate::sized(cost, Range::new(0, size.most))
            }
            "ip" if matches!(
                args.first().map(|arg| self.kind(arg)),
                Some(Type::Opaque(_))
            ) =>
            {
                Estimate::of(Range::ONE)
            }
            // Of a network, its address.
            "ip" if args.is_empty() => Estimate::of(Range::ONE),
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver"
            | "isSemver" => Estimate::of(first()?.scaled(LETTER)),
            "ip.isCanonical" => Estimate::of(first()?.scaled(2.0 * LETTER)),
            "containsIP" => self.contained(args, ADDRESS.plus(ADDRESS).scaled(LETTER))?,
            "containsCIDR" => {
                let cost = ADDRESS.plus(ADDRESS).scaled(LETTER);
                let cost = cost.plus(ADDRESS.scaled(LETTER)).plus(Range::ONE);
                self.contained(args, cost)?
            }
            "validate" => {
                let cost = first()?.scaled(LETTER);
                Estimate::of(cost.scaled(FORMAT_PATTERN * PATTERN_LETTER))
            }
            operators::EQUALS => self.own_equality(args)?,
            _ => return None,
        })
    }

    /// Of a list, what is in it and how large that is.
    fn element(&self, list: &IdedExpr) -> Option<(Type, Range)> {
        let of = match self.kind(list) {
            Type::List(of) => *of,
            Type::Map(key, _) => *key,
            Type::Optional(of) => *of,
            _ => return None,
        };
        let mut path = self.path(list);
        if !path.is_empty() {
            path.push(Step::Items);
        }
        let size = self.size_at(&path);
        Some((of, size.unwrap_or(Range::UNKNOWN)))
    }

    fn pattern(&self, text: Range, pattern: Range) -> Range {
        let letters = text.plus(Range::ONE).scaled(LETTER);
        letters.times(pattern.scaled(PATTERN_LETTER))
    }

    fn contained(&self, args: Parts<'_>, cost: Range) -> Option<Estimate> {
        let other = args.first()?;
        Some(Estimate::of(match self.kind(other) {
            Type::Opaque(_) => cost,
            _ => cost.plus(self.sized(other).scaled(LETTER)),
        }))
    }

    fn replace(&self, target: &IdedExpr, args: Parts<'_>) -> Option<Estimate> {
        let [from, to, ..] = args else {
            return None;
        };
        let (size, from, to) = (self.sized(target), self.sized(from), self.sized(to));
        let (mut count, mut kept) = (Range::ZERO, Range::ZERO);
        let parts = |size: u64, from: u64| (size as f64 / from as f64).ceil() as u64;
        if from.least == 0 {
            count.most = size.most.saturating_add(1);
            kept.most = size.most;
        } else if to.most <= from.least {
            kept.most = size.most;
        } else {
            count.most = parts(size.most, from.least);
        }
        if from.most == 0 {
            count.least = size.least.saturating_add(1);
            kept.least = size.least;
        } else if from.most <= to.least {
            kept.least = size.least;
        } else {
            count.least = parts(size.least, from.most);
        }
        let result = count.times(to).plus(kept);
        Some(Estimate::sized(size.scaled(2.0 * LETTER), result))
    }

    fn join(&self, target: &IdedExpr, args: Parts<'_>) -> Estimate {
        let list = self.sized(target);
        let mut size = match self.element(target) {
            Some((_, each)) => list.times(each),
            None => Range::ZERO,
        };
        if let Some(between) = args.first() {
            let gaps = Range::new(list.least.saturating_sub(1), list.most.saturating_sub(1));
            size = size.plus(self.sized(between).times(gaps));
        }
        Estimate::sized(size.scaled(LETTER), size)
    }

    /// Values of Kubernetes' own types.
    fn own_equality(&self, args: Parts<'_>) -> Option<Estimate> {
        let [one, other] = args else {
            return None;
        };
        let kind = self.kind(one);
        let Type::Opaque(name) = kind else {
            return None;
        };
        if kind != self.kind(other) {
            return None;
        }
        let most = match name {
            "kubernetes.NamedFormat" => FORMAT_NAME,
            "kubernetes.URL" => {
                let size = self.size(other).map_or(1, |size| size.most);
                return Some(Estimate::of(Range::new(1, size).scaled(LETTER)));
            }
            _ => return Some(Estimate::of(Range::ONE)),
        };
        Some(Estimate::of(Range::new(1, most).scaled(LETTER)))
    }

    /// What the language itself has.
    fn of_language(
        &mut self,
        part: &IdedExpr,
        name: &str,
        target: Option<&IdedExpr>,
        args: Parts<'_>,
    ) -> Option<Estimate> {
        let is_text = |kind: &Type| matches!(kind, Type::String | Type::Bytes);
        Some(match (name, target, args) {
            ("format", Some(target), _) => Estimate::of(self.sized(target).scaled(LETTER)),
            ("bytes", None, [arg]) if !matches!(self.kind(arg), Type::Bytes) => {
                let size = self.sized(arg);
                let result = Range::new(size.least, size.most.saturating_mul(4));
                Estimate::sized(size.scaled(LETTER), result)
            }
            ("string", None, [arg]) if matches!(self.kind(arg), Type::Bytes | Type::Dyn) => {
                let size = self.sized(arg);
                let result = Range::new(size.least / 4, size.most);
                Estimate::sized(size.scaled(LETTER), result)
            }
            ("strings.quote", _, [arg]) => {
                let size = self.sized(arg);
                let result = size.scaled(2.0).plus(Range::exactly(2));
                Estimate::sized(size.scaled(LETTER), Range::new(size.least + 2, result.most))
            }
            ("startsWith" | "endsWith", _, [arg]) => Estimate::of(self.sized(arg).scaled(LETTER)),
            (operators::IN, _, [_, list]) => match self.kind(list) {
                Type::Map(..) => Estimate::of(Range::ONE),
                Type::List(_) => Estimate::of(self.sized(list)),
                _ => Estimate::of(self.sized(list).or(Range::ONE)),
            },
            ("matches", Some(target), [pattern]) => {
                Estimate::of(self.pattern(self.sized(target), self.sized(pattern)))
            }
            ("contains", Some(target), [of]) => {
                let (text, of) = (self.sized(target), self.sized(of));
                Estimate::of(text.scaled(LETTER).times(of.scaled(LETTER)))
            }
            (operators::ADD, _, [one, other]) => self.sum(part, one, other)?,
            (operators::EQUALS | operators::NOT_EQUALS, _, [one, other]) => {
                self.compared(one, other)
            }
            (
                operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS,
                _,
                [one, other],
            ) => {
                let (left, right) = (self.kind(one), self.kind(other));
                if is_text(&left) || is_text(&right) {
                    self.compared(one, other)
                } else if left.is_dyn() && right.is_dyn() {
                    let text = self.compared(one, other);
                    Estimate::of(text.cost.or(Range::ONE))
                } else {
                    Estimate::of(Range::ONE)
                }
            }
            _ => return None,
        })
    }

    fn compared(&self, one: &IdedExpr, other: &IdedExpr) -> Estimate {
        let most = self.sized(one).most.min(self.sized(other).most);
        Estimate::of(Range::new(u64::from(most > 0), most).scaled(LETTER))
    }

    fn sum(&mut self, part: &IdedExpr, one: &IdedExpr, other: &IdedExpr) -> Option<Estimate> {
        let (left, right) = (self.kind(one), self.kind(other));
        let may_be = |wanted: fn(&Type) -> bool| {
            (wanted(&left) || left.is_dyn()) && (wanted(&right) || right.is_dyn())
        };
        let as_text = may_be(|kind| matches!(kind, Type::String | Type::Bytes));
        let as_list = may_be(|kind| matches!(kind, Type::List(_)));
        let as_number =
            may_be(|kind| matches!(kind, Type::Int | Type::Uint | Type::Double) || kind.is_time());
        if !as_text && !as_list {
            return None;
        }
        if let (Some(one), Some(other)) = (self.entry(one), self.entry(other)) {
            self.entries.insert(part.id, one.or(other));
        }
        let size = self.sized(one).plus(self.sized(other));
        let mut cost = Range::new(u64::MAX, 0);
        if as_text {
            cost = cost.or(size.scaled(LETTER));
        }
        if as_list || as_number {
            cost = cost.or(Range::ONE);
        }
        Some(Estimate::sized(cost, size))
    }
}
