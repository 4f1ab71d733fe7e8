//! The keys of a terminal, from the bytes that it sends.
//!
//! Not by the library that draws: it waits for ever when the terminal is gone. Limits: of the many sequences
//! of many terminals, those of xterm and Linux for the keys below are known; others are no key.

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// A character with the control key.
    Control(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// Tab.
    Tab,
    /// Up.
    Up,
    /// Down.
    Down,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
}

/// Makes keys of bytes.
#[derive(Debug, Default)]
pub struct Keyboard {
    /// The begin of a sequence whose end has not come yet.
    rest: Vec<u8>,
}

const ESCAPE: u8 = 0x1b;

impl Keyboard {
    /// Takes in bytes and returns the keys that they are.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend(bytes);
        let (mut keys, mut left) = (Vec::new(), &all[..]);
        while let Some((&first, after)) = left.split_first() {
            let is_sequence = first == ESCAPE && matches!(after.first(), Some(b'[' | b'O'));
            if is_sequence {
                let Some(end) = after[1..].iter().position(|byte| (0x40..=0x7e).contains(byte)) else {
                    self.rest = left.to_vec();
                    break;
                };
                keys.extend(of_sequence(&after[1..end + 2]));
                left = &after[end + 2..];
                continue;
            }
            let length = utf8_length(first);
            let Some(character) = left.get(..length) else {
                self.rest = left.to_vec();
                break;
            };
            keys.extend(of_character(character));
            left = &left[length..];
        }
        keys
    }
}

fn utf8_length(first: u8) -> usize {
    match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    }
}

fn of_character(bytes: &[u8]) -> Option<Key> {
    let character = std::str::from_utf8(bytes).ok()?.chars().next()?;
    Some(match character {
        '\u{1b}' => Key::Escape,
        '\r' | '\n' => Key::Enter,
        '\t' => Key::Tab,
        '\u{7f}' | '\u{8}' => Key::Backspace,
        '\u{1}'..='\u{1a}' => Key::Control((b'a' + bytes[0] - 1) as char),
        character if character.is_control() => return None,
        character => Key::Char(character),
    })
}

/// The key of what follows `ESC [` or `ESC O`.
fn of_sequence(bytes: &[u8]) -> Option<Key> {
    Some(match bytes {
        b"A" => Key::Up,
        b"B" => Key::Down,
        b"H" | b"1~" | b"7~" => Key::Home,
        b"F" | b"4~" | b"8~" => Key::End,
        b"5~" => Key::PageUp,
        b"6~" => Key::PageDown,
        b"Z" => Key::Tab,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_keys_however_they_are_cut() {
        let bytes = "qÄ/\r\t\u{7f}\u{3}\u{1b}[A\u{1b}OB\u{1b}[5~\u{1b}[1;5C\u{1b}[H".as_bytes();
        let expected = [
            Key::Char('q'),
            Key::Char('Ä'),
            Key::Char('/'),
            Key::Enter,
            Key::Tab,
            Key::Backspace,
            Key::Control('c'),
            Key::Up,
            Key::Down,
            Key::PageUp,
            Key::Home,
        ];
        assert_eq!(Keyboard::default().take(bytes), expected);
        // Not between ESC and what follows: that would be the key Escape.
        for cut in (1..bytes.len()).filter(|cut| bytes[cut - 1] != ESCAPE) {
            let mut keyboard = Keyboard::default();
            let keys = [keyboard.take(&bytes[..cut]), keyboard.take(&bytes[cut..])].concat();
            assert_eq!(keys, expected, "cut at {cut}");
        }
        assert_eq!(Keyboard::default().take(b"\x1b"), [Key::Escape]);
        assert_eq!(Keyboard::default().take(b"\x1b\t"), [Key::Escape, Key::Tab]);
        assert_eq!(Keyboard::default().take(b"\xff\x00x"), [Key::Char('x')], "what is no key");
    }
}
