//! Who sits at the terminal in a test: answers in order, and what was asked and told.
#![expect(clippy::expect_used, reason = "a fixture fails loudly")]

use std::sync::Mutex;

use orchestrate::remote::Prompt;

/// The person.
pub(crate) struct Person {
    answers: Mutex<Vec<Option<String>>>,
    asked: Mutex<Vec<String>>,
    told: Mutex<Vec<String>>,
}

impl Person {
    /// Nobody.
    pub(crate) fn silent() -> Self {
        Self::saying(&[])
    }

    pub(crate) fn saying(answers: &[&str]) -> Self {
        let answers = answers.iter().rev().map(|a| Some((*a).to_owned())).collect();
        Person { answers: Mutex::new(answers), asked: Mutex::default(), told: Mutex::default() }
    }

    pub(crate) fn was_asked(&self) -> Vec<String> {
        self.asked.lock().expect("not poisoned").clone()
    }

    pub(crate) fn was_told(&self) -> Vec<String> {
        self.told.lock().expect("not poisoned").clone()
    }
}

impl Prompt for Person {
    fn secret(&self, what: &str) -> Option<String> {
        self.asked.lock().expect("not poisoned").push(what.to_owned());
        self.answers.lock().expect("not poisoned").pop().flatten()
    }

    fn line(&self, what: &str) -> Option<String> {
        self.secret(&format!("in the open: {what}"))
    }

    fn notice(&self, text: &str) {
        self.told.lock().expect("not poisoned").push(text.to_owned());
    }
}
