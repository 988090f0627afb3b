"""Words that carry no value: politeness, hesitation, articles, pronouns, clause beginnings. Tables of English."""

from __future__ import annotations

from assistant.nlu.words import word_set

ARTICLES = word_set("a an the my our your his her their its that this those these some any both all every each")

FILLERS = word_set(
    "please um uh erm er ah oh well okay ok hey hi hello so just ho kindly quick quickly now then right like"
    " actually maybe sorry mate dear love darling bro dude man buddy pal honey sweetheart yaar na ta cheers thanks"
    " thank mum mom mummy mommy dad daddy sir would could can will you yeah yes yo oi listen alright only again"
    " already for me us if too also immediately fast asap go ready honestly really kind of sort bit tiny jarvis"
    " assistant alexa anyway somebody someone when possible can't mind first straight away today tonight once thx"
    " pls plz basically literally cos hmm hm wait cmon nearly almost still yet even anymore indeed"
)
"""At the end of a value they are not part of it."""

CLAUSES = word_set(
    "i im i'm ive i've id i'd ill i'll we we're weve we've were it its it's hes he's he shes she's she they"
    " theyre they're youre you're you youve thats that's theres there's is are was am be been being has have had"
    " do does did dont don't doesnt not and but or so because cause cos cuz until till while when whenever before"
    " after since if unless as with without starting isnt isn't arent wasnt wont didnt hasnt havent than then"
    " which who what whats where whether how why let lets nobody somebody someone everyone hang hold needs need"
    " wants want should could would can cant may might must shall looks look feels seems smell smells"
)
"""A value ends before them."""

VERBS = word_set(
    "set start lift make begin create give put run pop stick chuck bung throw add extend increase lengthen prolong"
    " raise bump decrease reduce shorten cut trim lower drop take knock shave slash lop subtract remove deduct"
    " pull bring move get pause stop halt freeze hold suspend resume unpause continue restart unfreeze carry keep"
    " cancel delete kill scrap end clear abort dismiss ditch bin forget wipe quit call turn switch shut open close"
    " lock unlock check tell show read say know need want see press hit count counting time ring beep wake remind"
    " let going goes do use change adjust mute play skip next back finish finished done doing ready running left"
    " remaining over up down off on out in to from at of for about around by onto into under near approximately"
    " roughly exactly"
)
"""Of commands; with the small words that come with them."""

STOPS = ARTICLES | FILLERS | CLAUSES | VERBS
