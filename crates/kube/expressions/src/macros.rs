//! Macros that Kubernetes switches on: loops with two variables, and for some expressions names for values.

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue, operators};
use cel::parser::{Macro, MacroExprHelper};
use cel::{DeclarationError, Env, IdedExpr, ParseError};

const SUM: &str = "@result";

type Expanded = Result<Option<IdedExpr>, ParseError>;

pub fn add(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_macro(Macro::receiver("all", 3, |helper, target, args| {
        two(helper, target, args, Kind::All)
    }))?;
    env.add_macro(Macro::receiver("exists", 3, |helper, target, args| {
        two(helper, target, args, Kind::Exists)
    }))?;
    for name in ["exists_one", "existsOne"] {
        env.add_macro(Macro::receiver(name, 3, |helper, target, args| {
            two(helper, target, args, Kind::One)
        }))?;
    }
    for count in [3, 4] {
        env.add_macro(Macro::receiver(
            "transformList",
            count,
            |helper, target, args| two(helper, target, args, Kind::List),
        ))?;
        env.add_macro(Macro::receiver(
            "transformMap",
            count,
            |helper, target, args| two(helper, target, args, Kind::Map),
        ))?;
        env.add_macro(Macro::receiver(
            "transformMapEntry",
            count,
            |helper, target, args| two(helper, target, args, Kind::Entry),
        ))?;
    }
    Ok(())
}

/// `cel.bind(name, value, expression)`.
pub fn add_bind(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_macro(Macro::receiver("bind", 3, bind))
}

/// A loop that is not run, whose sum begins with the value.
fn bind(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
) -> Expanded {
    let is_ours = target
        .as_ref()
        .is_some_and(|target| target.expr == Expr::Ident("cel".to_owned()));
    let Some(IdedExpr {
        expr: Expr::Ident(name),
        ..
    }) = args.first().filter(|_| is_ours).cloned()
    else {
        return Ok(None);
    };
    let (Some(result), Some(accu_init)) = (args.pop(), args.pop()) else {
        return Ok(None);
    };
    let nothing = Expr::List(ListExpr::new(Vec::new()));
    let comprehension = ComprehensionExpr {
        iter_range: helper.next_expr(nothing),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        loop_cond: helper.next_expr(Expr::Literal(LiteralValue::Boolean(false.into()))),
        loop_step: helper.next_expr(Expr::Ident(name.clone())),
        accu_var: name,
        accu_init,
        result,
    };
    let comprehension = Expr::Comprehension(Box::new(comprehension));
    Ok(Some(helper.next_expr(comprehension)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    All,
    Exists,
    One,
    List,
    Map,
    Entry,
}

fn two(
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
    kind: Kind,
) -> Expanded {
    let [first, second, ..] = args.as_slice() else {
        return Ok(None);
    };
    let (Expr::Ident(first), Expr::Ident(second)) = (first.expr.clone(), second.expr.clone())
    else {
        return Err(helper.new_error(first.id, "argument must be a simple name".to_owned()));
    };
    let mut rest = args.split_off(2);
    let Some(body) = rest.pop() else {
        return Ok(None);
    };
    let filter = rest.pop();
    let mut make = |expr| helper.next_expr(expr);
    let sum = |make: &mut dyn FnMut(Expr) -> IdedExpr| make(Expr::Ident(SUM.to_owned()));
    let call = |make: &mut dyn FnMut(Expr) -> IdedExpr, name: &str, args| {
        make(Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: None,
            args,
        }))
    };
    let flag = |value: bool| Expr::Literal(LiteralValue::Boolean(value.into()));
    let number = |value: i64| Expr::Literal(LiteralValue::Int(value.into()));
    let accu_init = match kind {
        Kind::All => make(flag(true)),
        Kind::Exists => make(flag(false)),
        Kind::One => make(number(0)),
        Kind::List => make(Expr::List(ListExpr::default())),
        Kind::Map | Kind::Entry => make(Expr::Map(Default::default())),
    };
    let loop_cond = match kind {
        Kind::All => {
            let so_far = sum(&mut make);
            call(&mut make, operators::NOT_STRICTLY_FALSE, vec![so_far])
        }
        Kind::Exists => {
            let so_far = sum(&mut make);
            let not = call(&mut make, operators::LOGICAL_NOT, vec![so_far]);
            call(&mut make, operators::NOT_STRICTLY_FALSE, vec![not])
        }
        _ => make(flag(true)),
    };
    let so_far = sum(&mut make);
    let mut loop_step = match kind {
        Kind::All => call(&mut make, operators::LOGICAL_AND, vec![so_far, body]),
        Kind::Exists => call(&mut make, operators::LOGICAL_OR, vec![so_far, body]),
        Kind::One => {
            let one = make(number(1));
            let more = call(&mut make, operators::ADD, vec![so_far, one]);
            let same = sum(&mut make);
            call(&mut make, operators::CONDITIONAL, vec![body, more, same])
        }
        Kind::List => {
            let item = make(Expr::List(ListExpr::new(vec![body])));
            call(&mut make, operators::ADD, vec![so_far, item])
        }
        Kind::Map => {
            let key = make(Expr::Ident(first.clone()));
            call(&mut make, "cel.@mapInsert", vec![so_far, key, body])
        }
        Kind::Entry => call(&mut make, "cel.@mapInsert", vec![so_far, body]),
    };
    if let Some(filter) = filter {
        let same = sum(&mut make);
        loop_step = call(
            &mut make,
            operators::CONDITIONAL,
            vec![filter, loop_step, same],
        );
    }
    let so_far = sum(&mut make);
    let result = if kind == Kind::One {
        let one = make(number(1));
        call(&mut make, operators::EQUALS, vec![so_far, one])
    } else {
        so_far
    };
    let Some(iter_range) = target.take() else {
        return Ok(None);
    };
    let comprehension = ComprehensionExpr {
        iter_range,
        iter_var: first,
        iter_var2: Some(second),
        accu_var: SUM.to_owned(),
        accu_init,
        loop_cond,
        loop_step,
        result,
    };
    Ok(Some(make(Expr::Comprehension(Box::new(comprehension)))))
}
