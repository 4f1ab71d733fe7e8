//! The formulas of event files: arithmetic over named events.
//!
//! ```text
//! sum     = product { ("+" | "-") product }
//! product = factor { ("*" | "/") factor }
//! factor  = number | name | "(" sum ")" | "-" factor | ("min" | "max" | "pow") "(" sum "," sum ")"
//! ```
//!
//! A formula is evaluated on what was counted in one interval, never on sums since the start: `min` and `pow`
//! of a sum are not the sum of `min` and `pow`, and a thread whose phases differ would be judged by its past.
//! A quotient with a zero below is zero, because a share of nothing is nothing. An event that was not
//! counted makes the whole formula unknown.

/// A parsed formula; events are referred to by their position in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    root: Node,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Number(f64),
    Event(usize),
    Apply(Operation, Box<[Node; 2]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Min,
    Max,
    Power,
}

/// Why a text is no formula.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no formula: {problem} at character {at}")]
pub struct FormulaError {
    /// The text as it was given.
    pub text: String,
    /// Where it goes wrong, counted from 1.
    pub at: usize,
    /// What is wrong.
    pub problem: String,
}

/// Parentheses and signs may be nested this deep; it keeps a broken file from exhausting the stack.
const DEPTH_MAX: u32 = 64;

impl Formula {
    /// Parses `text`, in which `events` are the known names.
    pub fn parse(text: &str, events: &[&str]) -> Result<Self, FormulaError> {
        let mut parser = Parser { text, at: 0, events, depth: 0 };
        let root = parser.sum()?;
        match parser.peek() {
            None => Ok(Self { root }),
            Some(rest) => Err(parser.error(format!("`{rest}` is too much"))),
        }
    }

    /// The value for these counts, in the order of the names given to [`Formula::parse`]. `None` if an event
    /// that it needs was not counted.
    pub fn value(&self, counts: &[Option<f64>]) -> Option<f64> {
        self.root.value(counts)
    }

    /// Whether the formula needs the event at this position.
    pub fn needs(&self, event: usize) -> bool {
        self.root.needs(event)
    }
}

impl Node {
    fn value(&self, counts: &[Option<f64>]) -> Option<f64> {
        let (operation, operands) = match self {
            Node::Number(number) => return Some(*number),
            Node::Event(index) => return counts[*index],
            Node::Apply(operation, operands) => (operation, operands),
        };
        let (a, b) = (operands[0].value(counts)?, operands[1].value(counts)?);
        Some(match operation {
            Operation::Add => a + b,
            Operation::Subtract => a - b,
            Operation::Multiply => a * b,
            Operation::Divide if b == 0.0 => 0.0,
            Operation::Divide => a / b,
            Operation::Min => a.min(b),
            Operation::Max => a.max(b),
            Operation::Power => a.powf(b),
        })
    }

    fn needs(&self, event: usize) -> bool {
        match self {
            Node::Number(_) => false,
            Node::Event(index) => *index == event,
            Node::Apply(_, operands) => operands.iter().any(|operand| operand.needs(event)),
        }
    }

    fn apply(operation: Operation, a: Node, b: Node) -> Node {
        Node::Apply(operation, Box::new([a, b]))
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Byte offset of what is not read yet.
    at: usize,
    events: &'a [&'a str],
    depth: u32,
}

impl Parser<'_> {
    fn error(&self, problem: String) -> FormulaError {
        let at = self.text[..self.at].chars().count() + 1;
        FormulaError { text: self.text.to_owned(), at, problem }
    }

    /// The next character that is no blank, without taking it.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    /// Takes the next character if it is one of `wanted`.
    fn take(&mut self, wanted: &[char]) -> Option<char> {
        let next = self.peek().filter(|next| wanted.contains(next))?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn expect(&mut self, wanted: char) -> Result<(), FormulaError> {
        match self.take(&[wanted]) {
            Some(_) => Ok(()),
            None => Err(self.error(format!("`{wanted}` is missing"))),
        }
    }

    fn sum(&mut self) -> Result<Node, FormulaError> {
        let mut left = self.product()?;
        while let Some(sign) = self.take(&['+', '-']) {
            let operation = if sign == '+' { Operation::Add } else { Operation::Subtract };
            left = Node::apply(operation, left, self.product()?);
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Node, FormulaError> {
        let mut left = self.factor()?;
        while let Some(sign) = self.take(&['*', '/']) {
            let operation = if sign == '*' { Operation::Multiply } else { Operation::Divide };
            left = Node::apply(operation, left, self.factor()?);
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<Node, FormulaError> {
        if self.depth == DEPTH_MAX {
            return Err(self.error(format!("it is nested deeper than {DEPTH_MAX}")));
        }
        self.depth += 1;
        let factor = match self.peek() {
            Some('(') => {
                self.expect('(')?;
                let inner = self.sum()?;
                self.expect(')').map(|()| inner)
            }
            Some('-') => {
                self.expect('-')?;
                Ok(Node::apply(Operation::Subtract, Node::Number(0.0), self.factor()?))
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() => self.name(),
            Some(c) => Err(self.error(format!("`{c}` is unexpected"))),
            None => Err(self.error("it ends too early".into())),
        };
        self.depth -= 1;
        factor
    }

    /// Takes the longest run of characters that satisfy `belongs`.
    fn word(&mut self, belongs: impl Fn(char) -> bool) -> &str {
        let rest = &self.text[self.at..];
        let length = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn number(&mut self) -> Result<Node, FormulaError> {
        let digits = self.word(|c| c.is_ascii_digit() || c == '.').to_owned();
        digits.parse().map(Node::Number).map_err(|_| self.error(format!("`{digits}` is no number")))
    }

    fn name(&mut self) -> Result<Node, FormulaError> {
        let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_').to_owned();
        let operation = match name.as_str() {
            "min" => Operation::Min,
            "max" => Operation::Max,
            "pow" => Operation::Power,
            event => {
                let index = self.events.iter().position(|known| *known == event);
                return index
                    .map(Node::Event)
                    .ok_or_else(|| self.error(format!("no event is named `{event}`")));
            }
        };
        self.expect('(')?;
        let first = self.sum()?;
        self.expect(',')?;
        let second = self.sum()?;
        self.expect(')')?;
        Ok(Node::apply(operation, first, second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [&str; 3] = ["cycles", "empty", "ops"];

    fn value(text: &str, counts: [Option<f64>; 3]) -> Option<f64> {
        Formula::parse(text, &EVENTS).unwrap().value(&counts)
    }

    #[test]
    fn arithmetic_follows_the_usual_rules() {
        for (text, expected) in [
            ("cycles - empty", 60.0),
            ("cycles - empty - ops", 50.0),
            ("cycles - (empty - ops)", 70.0),
            ("2 + 3 * ops", 32.0),
            ("(2 + 3) * ops", 50.0),
            ("cycles / ops / 2", 5.0),
            ("-ops + 1.5", -8.5),
            ("min(cycles, 3 * empty)", 100.0),
            ("max(0, empty - cycles)", 0.0),
            ("pow(2, ops)", 1024.0),
            ("ops / 0", 0.0),
            (" min ( ops , ( ( 4 ) ) ) ", 4.0),
            ("cycles * (1 - pow(1 - min(1, ops / empty), 2))", 43.75),
        ] {
            assert_eq!(value(text, [Some(100.0), Some(40.0), Some(10.0)]), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_was_not_counted_makes_the_value_unknown() {
        assert_eq!(value("cycles - empty", [Some(1.0), None, Some(1.0)]), None);
        assert_eq!(value("cycles + ops", [Some(1.0), None, Some(1.0)]), Some(2.0));
        let formula = Formula::parse("min(cycles, ops)", &EVENTS).unwrap();
        assert_eq!([0, 1, 2].map(|event| formula.needs(event)), [true, false, true]);
    }

    #[test]
    fn errors_name_the_place() {
        let deep = "(".repeat(100);
        for (text, at, problem) in [
            ("", 1, "it ends too early"),
            ("cycles -", 9, "it ends too early"),
            ("cycles empty", 8, "`e` is too much"),
            ("cycle", 6, "no event is named `cycle`"),
            ("min(cycles)", 11, "`,` is missing"),
            ("min cycles", 5, "`(` is missing"),
            ("(cycles", 8, "`)` is missing"),
            ("1.2.3", 6, "`1.2.3` is no number"),
            ("cycles ^ 2", 8, "`^` is too much"),
            ("§", 1, "`§` is unexpected"),
            ("ops + §", 7, "`§` is unexpected"),
            (deep.as_str(), 65, "it is nested deeper than 64"),
        ] {
            let error = Formula::parse(text, &EVENTS).unwrap_err();
            assert_eq!((error.at, error.problem.as_str()), (at, problem), "{text}");
        }
    }
}
