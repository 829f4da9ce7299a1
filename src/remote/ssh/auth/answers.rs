//! Passwords and prompts: asks, sends and remembers answers.

use russh::client::{AuthResult, KeyboardInteractiveAuthResponse, Prompt};
use russh::{MethodKind, MethodSet};

use super::super::auth_prompts::{AskedQuestion, AuthAnswerCache, AuthQuestion, SubmittedAnswer, sanitize_line};
use super::{AuthAttempt, AuthError, AuthProgress};
use crate::remote::RemoteError;

/// Rounds of prompts within one attempt.
pub(super) const MAX_PROMPT_ROUNDS: usize = 8;

const PROMPTS_HINT: &str = "use a key for this host";

/// Prompts in one round.
pub(super) const MAX_PROMPTS_PER_ROUND: usize = 16;

impl AuthAttempt<'_> {
    pub(super) async fn try_password(&mut self) -> Result<AuthProgress, AuthError> {
        let Some(given) = self.get_answer(&AuthQuestion::Password, "").await? else {
            self.out_of_answers = true;
            return Ok(AuthProgress::NothingSent);
        };
        self.tried_methods.password = true;
        self.prompt_rounds += 1;
        let call = self.handle.authenticate_password(self.hop.user.clone(), given.text.clone());
        let result = self.deadline.wait_for(call).await.ok_or_else(|| self.timeout_error())?;
        let Ok(result) = result else { return Err(self.disconnect_error().await) };
        let accepted = matches!(result, AuthResult::Success | AuthResult::Failure { partial_success: true, .. });
        let after = self.handle_result(result, "password").await?;
        self.record_answers(&[given], accepted).await;
        Ok(after)
    }

    /// Records whether answers were accepted.
    pub(super) async fn record_answers(&mut self, answers: &[SubmittedAnswer], accepted: bool) {
        if accepted {
            self.keyring.answers.mark_accepted(answers).await;
        } else {
            self.keyring.answers.mark_refused(answers, &mut self.refused_answers).await;
            // The variable holds one value: it is not sent again.
            self.out_of_answers |= answers.iter().any(|g| AuthAnswerCache::is_from_variable(self.hop, g));
        }
    }

    pub(super) async fn get_answer(&mut self, question: &AuthQuestion, preface: &str) -> Result<Option<SubmittedAnswer>, AuthError> {
        let _pause = self.deadline.pause_for_user();
        let answers = &self.keyring.answers;
        let asked = AskedQuestion { question, preface };
        answers.find_or_ask(self.hop, asked, &self.refused_answers, &self.keyring.prompt).await.map_err(AuthError::Final)
    }

    /// keyboard-interactive (RFC 4256): rounds of prompts until the server decides.
    pub(super) async fn try_keyboard_interactive(&mut self) -> Result<AuthProgress, AuthError> {
        self.prompt_rounds += 1;
        let start = self.handle.authenticate_keyboard_interactive_start(self.hop.user.clone(), None);
        let mut reply = self.deadline.wait_for(start).await.ok_or_else(|| self.timeout_error())?;
        let mut given = Vec::new();
        for _ in 0..MAX_PROMPT_ROUNDS {
            let answers = match reply {
                Ok(KeyboardInteractiveAuthResponse::Success) => {
                    self.record_answers(&given, true).await;
                    return Ok(AuthProgress::Authenticated);
                }
                Ok(KeyboardInteractiveAuthResponse::Failure { remaining_methods, partial_success }) => {
                    self.count_result(partial_success, "keyboard-interactive");
                    self.record_answers(&given, partial_success).await;
                    // A server that sends no prompt and refuses would repeat this forever.
                    self.out_of_answers |= given.is_empty() && !partial_success;
                    return Ok(AuthProgress::Remaining(remaining_methods));
                }
                Ok(KeyboardInteractiveAuthResponse::InfoRequest { name, instructions, prompts }) => {
                    self.answer_prompts(&sanitize_line(&format!("{name} {instructions}")), &prompts, &mut given).await?
                }
                Err(_) => return Err(self.disconnect_error().await),
            };
            let respond = self.handle.authenticate_keyboard_interactive_respond(answers);
            reply = self.deadline.wait_for(respond).await.ok_or_else(|| self.timeout_error())?;
        }
        let what = self.hop.prefix_message(&format!("the server prompted more than {MAX_PROMPT_ROUNDS} times in one login"));
        Err(AuthError::Final(RemoteError::refused(what, PROMPTS_HINT)))
    }

    /// The answers to one round. Without a user's answers empty ones are sent, as ssh does: russh accepts nothing else at this point.
    pub(super) async fn answer_prompts(
        &mut self,
        preface: &str,
        prompts: &[Prompt],
        given: &mut Vec<SubmittedAnswer>,
    ) -> Result<Vec<String>, AuthError> {
        if prompts.len() > MAX_PROMPTS_PER_ROUND {
            let what = self.hop.prefix_message(&format!("the server sent {} prompts at once", prompts.len()));
            return Err(AuthError::Final(RemoteError::refused(what, PROMPTS_HINT)));
        }
        let mut answers = Vec::new();
        for (at, prompt) in prompts.iter().enumerate() {
            let question = AuthQuestion::from_prompt(&prompt.prompt, prompt.echo);
            let preface = if at == 0 { preface } else { "" };
            let answer = if self.out_of_answers { None } else { self.get_answer(&question, preface).await? };
            match answer {
                Some(one) => {
                    self.tried_methods.password |= question == AuthQuestion::Password;
                    self.tried_methods.prompt_answers |= question != AuthQuestion::Password;
                    answers.push(one.text.clone());
                    given.push(one);
                }
                None => {
                    self.out_of_answers = true;
                    if self.offers.is_empty() {
                        return Err(self.refusal_error(Some(&MethodSet::from(&[MethodKind::KeyboardInteractive][..]))));
                    }
                    answers.push(String::new());
                }
            }
        }
        Ok(answers)
    }
}
