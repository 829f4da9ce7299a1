//! What a person answers to servers: a password once for all hosts, a code for as long as it is good, nothing twice to the same host.
//!
//! Uses `settings` and `hop`. Owns the questions; knows no connections. The rules are in docs/hosts.md, "Logging in".

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::remote::RemoteError;
use crate::remote::hop::Hop;
use crate::remote::settings::{Prompt, Variables};

/// How long an answer that is no password is given to further hosts: a code of RFC 6238 lives for 30 s, and servers take the one before.
const CODE: Duration = Duration::from_secs(30);
/// How much of a server's text is shown.
const SHOWN: usize = 300;

/// The person at the terminal, asked one thing at a time.
pub(super) struct Person {
    prompt: Arc<dyn Prompt>,
    turn: tokio::sync::Mutex<()>,
}

impl Person {
    pub(super) fn new(prompt: Arc<dyn Prompt>) -> Self {
        Person { prompt, turn: tokio::sync::Mutex::new(()) }
    }

    /// Tells something.
    pub(super) fn notice(&self, text: &str) {
        self.prompt.notice(text);
    }

    /// Lets `talk` speak with the person while nobody else does.
    pub(super) async fn with<T: Send + 'static>(&self, talk: impl FnOnce(&dyn Prompt) -> T + Send + 'static) -> Option<T> {
        let _turn = self.turn.lock().await;
        let prompt = self.prompt.clone();
        tokio::task::spawn_blocking(move || talk(prompt.as_ref())).await.ok()
    }
}

/// What a server wants to know.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Question {
    /// The password of the user.
    Password,
    /// Anything else, as the server words it.
    Other { text: String, echo: bool },
}

impl Question {
    /// A prompt of keyboard-interactive. What is hidden and calls itself a password is one, unless it speaks of a new one or of a code.
    pub(super) fn of(prompt: &str, echo: bool) -> Self {
        const PASSWORD: [&str; 12] = [
            "password",
            "passwort",
            "kennwort",
            "mot de passe",
            "contraseña",
            "senha",
            "parola",
            "hasło",
            "пароль",
            "密码",
            "密碼",
            "パスワード",
        ];
        const NOT: [&str; 9] = ["one-time", "one time", "otp", "code", "token", "verification", "new ", "retype", "again"];
        let text = plain(prompt);
        let low = text.to_lowercase();
        let password = !echo && PASSWORD.iter().any(|w| low.contains(w)) && !NOT.iter().any(|w| low.contains(w));
        if password { Question::Password } else { Question::Other { text, echo } }
    }
}

/// A server's text as one line without anything that moves a cursor.
pub(super) fn plain(text: &str) -> String {
    let joined = text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ");
    // Marks that turn the direction of text would let a server show something else than it says.
    let turns = |c: &char| !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    joined.chars().filter(turns).take(SHOWN).collect()
}

/// One question to one kind of host, and every answer so far.
#[derive(Default)]
struct Known {
    answers: Vec<Answer>,
    /// Nobody was there.
    nobody: bool,
    /// A server took this code from one host and not from another: each host gets its own.
    once: bool,
}

struct Answer {
    text: String,
    when: Instant,
    /// A host has let us in, or further, with it.
    good: bool,
}

/// An answer on its way to a host.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) text: String,
    key: Key,
    number: usize,
}

type Key = (String, Question);

/// The answers that one host has refused.
pub(super) type Refused = HashMap<Key, usize>;

/// The answers of a fleet.
pub(super) struct Answers {
    variables: Variables,
    known: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<Known>>>>,
}

impl Answers {
    pub(super) fn new(variables: Variables) -> Self {
        Answers { variables, known: Mutex::default() }
    }

    fn slot(&self, key: &Key) -> Arc<tokio::sync::Mutex<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default().clone()
    }

    /// Whether a variable holds the password, so that a person is not asked for it.
    pub(super) fn from_variable(hop: &Hop, given: &Given) -> bool {
        hop.password.is_some() && given.key.1 == Question::Password
    }

    /// An answer that this host has not refused yet: a known one, or a person's. `None`: there is none.
    ///
    /// # Errors
    /// The variable that `ssh.password` names is not set.
    pub(super) async fn get(
        &self,
        hop: &Hop,
        question: &Question,
        preface: &str,
        refused: &Refused,
        person: &Person,
    ) -> Result<Option<Given>, RemoteError> {
        let key = (owner(hop), question.clone());
        let from = refused.get(&key).map_or(0, |n| n + 1);
        let given = |number, text: &str| Some(Given { text: text.to_owned(), key: key.clone(), number });
        if let (Question::Password, Some(name)) = (question, &hop.password) {
            let value = (self.variables)(name).ok_or_else(|| RemoteError::Settings {
                what: format!("a password is wanted, and the variable {name} (ssh.password) is not set"),
                hint: format!("export {name}=…"),
            })?;
            return Ok(if from == 0 { given(0, &value) } else { None });
        }
        let slot = self.slot(&key);
        let mut known = slot.lock().await;
        let may = |a: &Answer| *question == Question::Password || (!known.once && a.when.elapsed() < CODE);
        let open: Vec<usize> = (from..known.answers.len()).filter(|n| known.answers.get(*n).is_some_and(may)).collect();
        let good = open.iter().find(|n| known.answers.get(**n).is_some_and(|a| a.good));
        if let Some((number, answer)) = good.or(open.last()).and_then(|n| Some((*n, known.answers.get(*n)?))) {
            return Ok(given(number, &answer.text));
        }
        if hop.login.batch || known.nobody {
            return Ok(None);
        }
        let (shown, echo, again) = (shown(hop, question), matches!(question, Question::Other { echo: true, .. }), from > 0);
        let (name, preface) = (hop.name.clone(), preface.to_owned());
        let asked = person.with(move |prompt| {
            if again {
                prompt.notice(&format!("{name}: that was not accepted"));
            }
            if !preface.is_empty() {
                prompt.notice(&format!("{name}: {preface}"));
            }
            if echo { prompt.line(&shown) } else { prompt.secret(&shown) }
        });
        let Some(text) = asked.await.flatten() else {
            known.nobody = true;
            return Ok(None);
        };
        known.answers.push(Answer { text: text.clone(), when: Instant::now(), good: false });
        Ok(given(known.answers.len() - 1, &text))
    }

    /// A host has taken these answers.
    pub(super) async fn good(&self, given: &[Given]) {
        for one in given {
            let slot = self.slot(&one.key);
            if let Some(answer) = slot.lock().await.answers.get_mut(one.number) {
                answer.good = true;
            }
        }
    }

    /// A host has refused these answers, given together. Those that no other host has taken are to blame; where all were taken elsewhere, the
    /// codes are, which then are good for one host each.
    pub(super) async fn bad(&self, given: &[Given], refused: &mut Refused) {
        let mut fresh = Vec::new();
        for one in given {
            let slot = self.slot(&one.key);
            let good = slot.lock().await.answers.get(one.number).is_some_and(|a| a.good);
            fresh.extend((!good).then_some(one));
        }
        let codes: Vec<&Given> = given.iter().filter(|g| g.key.1 != Question::Password).collect();
        let blamed = if !fresh.is_empty() {
            fresh
        } else if !codes.is_empty() {
            for code in &codes {
                self.slot(&code.key).lock().await.once = true;
            }
            codes
        } else {
            given.iter().collect()
        };
        refused.extend(blamed.into_iter().map(|g| (g.key.clone(), g.number)));
    }
}

/// Whose answers they are: all hosts of the inventory share a user's, a jump host has its own.
fn owner(hop: &Hop) -> String {
    if hop.jump { format!("{}@{}", hop.user, hop.name) } else { hop.user.clone() }
}

fn shown(hop: &Hop, question: &Question) -> String {
    let place = format!("{}@{}", hop.user, hop.name);
    let place = if hop.jump { place } else { format!("{place}, and every host that asks the same") };
    match question {
        Question::Password => format!("password of {place}"),
        Question::Other { text, .. } => format!("{} ({place})", text.trim_end_matches([':', ' '])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_told_from_a_code_and_from_a_new_password() {
        for text in ["Password: ", "li@gpu01's password:", "Passwort:", "(current) UNIX password: ", "密码："] {
            assert_eq!(Question::of(text, false), Question::Password, "{text}");
        }
        for text in
            ["Verification code: ", "One-time password (OATH) for `li': ", "New password: ", "Retype password:", "PIN+token:", "Duo:"]
        {
            assert!(matches!(Question::of(text, false), Question::Other { echo: false, .. }), "{text}");
        }
        assert!(matches!(Question::of("Password: ", true), Question::Other { echo: true, .. }));
    }

    #[test]
    fn a_servers_text_moves_nothing() {
        assert_eq!(plain("\u{1b}[2J\r\nhello\t\u{202e}dlrow\u{7}  "), "[2J hello dlrow");
        assert_eq!(plain(&"x".repeat(9999)).len(), SHOWN);
    }
}
