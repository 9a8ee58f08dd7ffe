//! What an expression becomes before it is computed: a tree in which names are places and functions are found.

use std::sync::{Arc, OnceLock};

use cel::{IdedExpr, Value};
use regex::Regex;

use crate::library::Call;

#[derive(Debug)]
pub enum Code {
    Literal(Value),
    /// A variable of a loop.
    Local(usize),
    Global(Arc<str>),
    Select(Box<Select>),
    And(Box<[Code; 2]>),
    Or(Box<[Code; 2]>),
    If(Box<[Code; 3]>),
    Operator(Operator, Box<[Code; 2]>),
    Not(Box<Code>),
    Negate(Box<Code>),
    /// Anything but false.
    NotFalse(Box<Code>),
    /// `a[?b]` and `a.?b` give what may be missing.
    Index {
        parts: Box<[Code; 2]>,
        optional: bool,
    },
    Call(Box<Function>),
    List(Vec<Item>),
    Map(Vec<(Code, Item)>),
    Fold(Box<Fold>),
    /// What a loop has collected, with more.
    Append(usize, Vec<Item>),
    Insert(usize, Vec<Code>),
}

#[derive(Debug)]
pub struct Select {
    pub of: Code,
    pub field: Arc<String>,
    /// Whether there is one.
    pub test: bool,
    /// What is selected from is no variable, nor selected from one.
    pub computed: bool,
}

#[derive(Debug)]
pub struct Item {
    pub code: Code,
    /// It is left out where it has no value.
    pub optional: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equals,
    NotEquals,
    Less,
    LessEquals,
    Greater,
    GreaterEquals,
    In,
    /// In a list of plain values that is written down.
    InWritten,
}

#[derive(Debug)]
pub struct Function {
    pub name: &'static str,
    pub run: Run,
    /// What a method is called on comes first.
    pub args: Vec<Code>,
}

/// How a function is computed.
#[derive(Debug)]
pub enum Run {
    Ours(Call),
    /// By the crate that also parses: a call with variables for its arguments.
    Theirs(Box<IdedExpr>),
    /// With a pattern that is written down, read once.
    Pattern(OnceLock<Result<Regex, String>>),
}

#[derive(Debug)]
pub struct Fold {
    pub range: Code,
    pub start: Code,
    pub condition: Code,
    pub step: Code,
    pub result: Code,
    /// The first place of three: the item or key, the second variable, the sum.
    pub place: usize,
    pub two: bool,
    /// `all` and `exists` go on after an error: a later item may decide.
    pub decides: Option<bool>,
    /// It gives a name to a value.
    pub binds: bool,
}
