//! Computes expressions. Values are shared, not copied, so that what is computed costs what is counted.

mod costs;
mod operators;

use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{ExecutionError, Value};
use regex::Regex;

use crate::code::{Code, Fold, Function, Item, Run, Select};
use crate::library::{self, inner, is_optional, optional, type_name};
use crate::meter::{Failure, Meter};

pub(crate) use operators::compare;

type Found = Result<Value, Failure>;

/// Its costs, as the original has them.
const NAME: u64 = 1;
const SELECT: u64 = 1;
const LIST: u64 = 10;
const MAP: u64 = 30;

pub fn evaluate(code: &Code, variables: &[(&str, Value)], meter: &mut Meter) -> Found {
    let mut run = Evaluation {
        variables,
        places: Vec::new(),
        meter,
    };
    run.value(code)
}

struct Evaluation<'e> {
    variables: &'e [(&'e str, Value)],
    places: Vec<Value>,
    meter: &'e mut Meter,
}

impl Evaluation<'_> {
    /// Short, because it calls itself for every level of an expression.
    fn value(&mut self, code: &Code) -> Found {
        self.meter.step(1)?;
        match code {
            Code::Literal(value) => Ok(value.clone()),
            Code::Local(_) | Code::Global(_) => self.variable(code, NAME),
            Code::Select(select) => self.select(select),
            Code::And(parts) => self.decide(parts, false),
            Code::Or(parts) => self.decide(parts, true),
            Code::If(parts) => self.either(parts),
            Code::Operator(operator, parts) => {
                let one = self.value(&parts[0])?;
                let other = self.value(&parts[1])?;
                operators::binary(*operator, one, other, self.meter)
            }
            Code::Not(of) => self.not(of),
            Code::Negate(of) => self.negate(of),
            Code::NotFalse(of) => self.not_false(of),
            Code::Index { parts, optional } => self.index(parts, *optional),
            Code::Call(function) => self.call(function),
            Code::List(items) => self.list(items),
            Code::Map(entries) => self.map(entries),
            Code::Fold(fold) => self.fold(fold),
            Code::Append(place, items) => self.append(*place, items),
            Code::Insert(place, args) => self.insert(*place, args),
        }
    }

    fn variable(&mut self, code: &Code, cost: u64) -> Found {
        self.meter.charge(cost)?;
        match code {
            Code::Local(place) => Ok(self.places.get(*place).cloned().unwrap_or(Value::Null)),
            Code::Global(name) => {
                let known = self.variables.iter().find(|(known, _)| *known == &**name);
                let undeclared = || ExecutionError::undeclared_reference(name).into();
                known.map(|(_, value)| value.clone()).ok_or_else(undeclared)
            }
            other => self.value(other),
        }
    }

    /// Of a variable that stands by itself the original counts nothing in some places.
    fn branch(&mut self, code: &Code) -> Found {
        match code {
            Code::Local(_) | Code::Global(_) => self.variable(code, 0),
            other => self.value(other),
        }
    }

    fn select(&mut self, select: &Select) -> Found {
        let of = self.value(&select.of)?;
        self.meter
            .charge(u64::from(select.computed) + SELECT * u64::from(!select.test))?;
        let (of, was_optional) = match opened(of) {
            Opened::Nothing if select.test => return Ok(Value::Bool(false)),
            Opened::Nothing => return Ok(optional(None)),
            Opened::Plain(of) => (of, false),
            Opened::Inner(of) => (of, true),
        };
        let Value::Map(map) = &of else {
            let types = vec![type_name(&of).to_owned(), "string".to_owned()];
            return Err(ExecutionError::no_such_overload("_._", types).into());
        };
        let found = map
            .map
            .get(&Key::String(Arc::clone(&select.field)))
            .cloned();
        match found {
            found if select.test => Ok(Value::Bool(found.is_some())),
            found if was_optional => Ok(optional(found)),
            Some(found) => Ok(found),
            None => Err(ExecutionError::NoSuchKey(Arc::clone(&select.field)).into()),
        }
    }

    /// `&&` (decided by false) and `||` (by true): what decides does so whatever befalls the other side.
    fn decide(&mut self, parts: &[Code; 2], decides: bool) -> Found {
        let one = self.flag(&parts[0])?;
        if one == Ok(decides) {
            return Ok(Value::Bool(decides));
        }
        let other = self.flag(&parts[1])?;
        match (one, other) {
            (_, Ok(other)) if other == decides => Ok(Value::Bool(decides)),
            (Err(error), _) | (_, Err(error)) => Err(Failure::Error(error)),
            _ => Ok(Value::Bool(!decides)),
        }
    }

    /// Errors that another side may make good come within; others end everything.
    fn flag(&mut self, code: &Code) -> Result<Result<bool, Box<ExecutionError>>, Failure> {
        match self.value(code) {
            Ok(Value::Bool(flag)) => Ok(Ok(flag)),
            Ok(other) => Ok(Err(Box::new(no_overload("", &[&other])))),
            Err(Failure::Error(error)) => Ok(Err(error)),
            Err(failure) => Err(failure),
        }
    }

    fn either(&mut self, parts: &[Code; 3]) -> Found {
        match self.value(&parts[0])? {
            Value::Bool(true) => self.branch(&parts[1]),
            Value::Bool(false) => self.branch(&parts[2]),
            other => Err(no_overload("_?_:_", &[&other]).into()),
        }
    }

    fn not(&mut self, of: &Code) -> Found {
        let of = self.value(of)?;
        self.meter.charge(1)?;
        match of {
            Value::Bool(flag) => Ok(Value::Bool(!flag)),
            other => Err(no_overload("!_", &[&other]).into()),
        }
    }

    fn negate(&mut self, of: &Code) -> Found {
        let of = self.value(of)?;
        self.meter.charge(1)?;
        match of {
            Value::Float(number) => Ok(Value::Float(-number)),
            Value::Int(number) => match number.checked_neg() {
                Some(number) => Ok(Value::Int(number)),
                None => Err(ExecutionError::Overflow("neg", of, Value::Null).into()),
            },
            other => Err(no_overload("-_", &[&other]).into()),
        }
    }

    fn not_false(&mut self, of: &Code) -> Found {
        let flag = self.flag(of)?;
        self.meter.charge(1)?;
        Ok(Value::Bool(flag.unwrap_or(true)))
    }

    fn index(&mut self, parts: &[Code; 2], is_optional: bool) -> Found {
        let of = self.value(&parts[0])?;
        let index = self.branch(&parts[1])?;
        self.meter.charge(SELECT)?;
        let (of, is_optional) = match opened(of) {
            Opened::Nothing => return Ok(optional(None)),
            Opened::Plain(of) => (of, is_optional),
            Opened::Inner(of) => (of, true),
        };
        match (operators::item(&of, &index), is_optional) {
            (found, true) => Ok(optional(found.ok())),
            (found, false) => found.map_err(Into::into),
        }
    }

    fn call(&mut self, function: &Function) -> Found {
        let mut args = Vec::with_capacity(function.args.len());
        for arg in &function.args {
            args.push(self.value(arg)?);
        }
        costs::charge(function.name, &args, self.meter)?;
        match &function.run {
            Run::Ours(call) => {
                if let ("matches" | "find" | "findAll", Some(Value::String(pattern))) =
                    (function.name, args.get(1))
                {
                    self.meter.read_pattern(pattern)?;
                }
                library::run(*call, function.name, &args).map_err(Into::into)
            }
            Run::Theirs(call) => {
                library::run_foreign(call, function.name, args).map_err(Into::into)
            }
            Run::Pattern(pattern) => {
                let Value::String(text) = &args[1] else {
                    return Err(no_overload(function.name, &[&args[0], &args[1]]).into());
                };
                if pattern.get().is_none() {
                    self.meter.read_pattern(text)?;
                }
                let read = || library::pattern(text).map_err(|error| error.to_string());
                match pattern.get_or_init(read) {
                    Ok(pattern) => self.matched(function.name, pattern, &args),
                    Err(error) => Err(library::error(function.name, error).into()),
                }
            }
        }
    }

    fn matched(&mut self, name: &str, pattern: &Regex, args: &[Value]) -> Found {
        let found = match name {
            "matches" => library::matches(pattern, args),
            "find" => library::find_one(pattern, args),
            _ => library::find_all(pattern, args),
        };
        found
            .map_err(|problem| library::named(problem, name, args))
            .map_err(Into::into)
    }

    /// The value of an element, if it has one.
    fn item(&mut self, item: &Item) -> Result<Option<Value>, Failure> {
        let value = self.value(&item.code)?;
        if !item.optional {
            return Ok(Some(value));
        }
        Ok(match opened(value) {
            Opened::Nothing => None,
            Opened::Plain(value) | Opened::Inner(value) => Some(value),
        })
    }

    fn list(&mut self, items: &[Item]) -> Found {
        self.meter.charge(LIST)?;
        self.meter.make(size_of::<Value>() * items.len())?;
        let mut list = Vec::with_capacity(items.len());
        for item in items {
            list.extend(self.item(item)?);
        }
        Ok(Value::List(Arc::new(list)))
    }

    fn map(&mut self, entries: &[(Code, Item)]) -> Found {
        self.meter.charge(MAP)?;
        self.meter.make(size_of::<(Key, Value)>() * entries.len())?;
        let mut map = HashMap::with_capacity(entries.len());
        for (key, item) in entries {
            let key = self.value(key)?;
            let key = key
                .try_into()
                .map_err(ExecutionError::unsupported_key_type)?;
            // Of a repeated key the last one counts.
            if let Some(value) = self.item(item)? {
                map.insert(key, value);
            }
        }
        Ok(Value::Map(Map { map: Arc::new(map) }))
    }

    fn fold(&mut self, fold: &Fold) -> Found {
        let start = self.value(&fold.start)?;
        let range = match fold.binds {
            true => Value::List(Arc::default()),
            false => self.value(&fold.range)?,
        };
        self.places.truncate(fold.place);
        self.places.extend([Value::Null, Value::Null, start]);
        let done = match &range {
            Value::List(items) => self.over_list(fold, items),
            Value::Map(map) => self.over_map(fold, map),
            other => Err(no_overload("", &[other]).into()),
        };
        let result = done.and_then(|()| self.value(&fold.result));
        self.places.truncate(fold.place);
        result
    }

    fn over_list(&mut self, fold: &Fold, items: &[Value]) -> Result<(), Failure> {
        let mut pending = None;
        for (index, item) in (0..).zip(items) {
            let pair = match fold.two {
                true => [Value::Int(index), item.clone()],
                false => [item.clone(), Value::Null],
            };
            if !self.round(fold, pair, &mut pending)? {
                break;
            }
        }
        pending.map_or(Ok(()), Err)
    }

    fn over_map(&mut self, fold: &Fold, map: &Map) -> Result<(), Failure> {
        let mut pending = None;
        for (key, value) in map.map.iter() {
            let pair = [Value::from(key), value.clone()];
            if !self.round(fold, pair, &mut pending)? {
                break;
            }
        }
        pending.map_or(Ok(()), Err)
    }

    /// One item's turn; whether there is a next one.
    fn round(
        &mut self,
        fold: &Fold,
        [first, second]: [Value; 2],
        pending: &mut Option<Failure>,
    ) -> Result<bool, Failure> {
        match self.value(&fold.condition)? {
            Value::Bool(true) => {}
            Value::Bool(false) => return Ok(false),
            other => return Err(no_overload("", &[&other]).into()),
        }
        self.places[fold.place] = first;
        self.places[fold.place + 1] = second;
        let step = match &fold.step {
            // What the sum is already is not asked for, but it costs.
            Code::And(parts) | Code::Or(parts) if fold.decides.is_some() => {
                self.meter.charge(NAME)?;
                self.flag(&parts[1])?
                    .map(Value::Bool)
                    .map_err(Failure::Error)
            }
            step => self.value(step),
        };
        let sum = fold.place + 2;
        match (step, fold.decides) {
            (Ok(value), Some(decides)) if value == Value::Bool(decides) => {
                *pending = None;
                self.places[sum] = value;
            }
            (Ok(_), Some(_)) => {}
            (Ok(value), None) => self.places[sum] = value,
            (Err(failure @ Failure::Error(_)), Some(_)) => {
                pending.get_or_insert(failure);
            }
            (Err(failure), _) => return Err(failure),
        }
        self.places.truncate(fold.place + 3);
        Ok(true)
    }

    fn append(&mut self, place: usize, items: &[Item]) -> Found {
        self.meter.charge(NAME + 1 + LIST)?;
        self.meter.make(size_of::<Value>() * items.len())?;
        let sum = std::mem::replace(&mut self.places[place], Value::Null);
        let Value::List(mut list) = sum else {
            return Err(no_overload("_+_", &[&sum]).into());
        };
        for item in items {
            let item = self.item(item)?;
            Arc::make_mut(&mut list).extend(item);
        }
        Ok(Value::List(list))
    }

    fn insert(&mut self, place: usize, args: &[Code]) -> Found {
        self.meter.charge(NAME + 1)?;
        let sum = std::mem::replace(&mut self.places[place], Value::Null);
        let Value::Map(mut map) = sum else {
            return Err(no_overload("cel.@mapInsert", &[&sum]).into());
        };
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            values.push(self.value(arg)?);
        }
        let inner = Arc::make_mut(&mut map.map);
        match values.as_slice() {
            [key, value] => {
                self.meter.make(size_of::<(Key, Value)>())?;
                let key = key.clone().try_into();
                inner.insert(
                    key.map_err(ExecutionError::unsupported_key_type)?,
                    value.clone(),
                );
            }
            [Value::Map(more)] => {
                self.meter
                    .make(size_of::<(Key, Value)>() * more.map.len())?;
                let more = more.map.iter();
                inner.extend(more.map(|(key, value)| (key.clone(), value.clone())));
            }
            _ => return Err(no_overload("cel.@mapInsert", &[]).into()),
        }
        Ok(Value::Map(map))
    }
}

enum Opened {
    Plain(Value),
    /// What an optional has.
    Inner(Value),
    Nothing,
}

fn opened(value: Value) -> Opened {
    if !is_optional(&value) {
        return Opened::Plain(value);
    }
    match inner(&value) {
        Some(inner) => Opened::Inner(inner.clone()),
        None => Opened::Nothing,
    }
}

fn no_overload(name: &str, values: &[&Value]) -> ExecutionError {
    let types = values.iter().map(|value| type_name(value).to_owned());
    ExecutionError::no_such_overload(name, types.collect())
}
