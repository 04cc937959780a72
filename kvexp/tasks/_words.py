"""Words that generated tasks draw from, and how they are chosen."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar

# Names and words that generated facts are made of; answers are common words of one token each.


CITIES: tuple[str, ...] = tuple(
    """
    Oslo Paris London Berlin Madrid Rome Vienna Prague Warsaw Athens Lisbon Dublin Helsinki Stockholm
    Copenhagen Brussels Amsterdam Budapest Zurich Geneva Milan Naples Venice Florence Turin Munich
    Hamburg Cologne Frankfurt Barcelona Seville Valencia Porto Lyon Marseille Glasgow Edinburgh
    Liverpool Manchester Birmingham Bristol Oxford Cambridge Boston Chicago Denver Seattle Portland
    Houston Dallas Austin Phoenix Atlanta Miami Detroit Cleveland Pittsburgh Baltimore Montreal Toronto
    Vancouver Ottawa Calgary Havana Lima Bogota Santiago Cairo Nairobi Lagos Tunis Casablanca Istanbul
    Ankara Jerusalem Beirut Damascus Baghdad Tehran Karachi Delhi Mumbai Calcutta Bangkok Hanoi Manila
    Jakarta Singapore Tokyo Osaka Kyoto Seoul Beijing Shanghai Taipei Sydney Melbourne Perth Auckland
    Wellington Moscow Kiev Riga Tallinn Sofia Belgrade Zagreb
    """.split()
)

WORDS: tuple[str, ...] = tuple(
    """
    maple cedar willow oak pine birch lemon apple peach plum cherry grape banana mango onion
    garlic pepper ginger honey sugar butter cheese bread coffee cocoa salt rice wheat corn bean potato
    tomato carrot tiger lion wolf bear fox rabbit horse goat sheep camel monkey elephant whale shark
    dolphin turtle frog snake spider eagle owl hawk sparrow duck goose crow pigeon
    parrot salmon trout crab lobster oyster coral river lake ocean island mountain valley forest
    desert meadow garden canyon glacier volcano beach harbor bridge castle tower palace temple church
    chapel cottage farm barn mill market museum library theater school hospital prison kitchen window
    door chimney roof ceiling carpet curtain pillow blanket mirror candle lantern lamp hammer nail
    needle thread button ribbon basket bottle bucket barrel kettle spoon fork knife plate bowl cup
    piano violin guitar drum flute trumpet bell whistle pencil paper letter envelope stamp coin purse
    jacket coat shirt hat glove boot shoe sock belt silver copper iron marble diamond pearl ruby
    amber velvet cotton silk wool leather thunder lightning rain snow storm cloud rainbow winter
    summer autumn spring moon planet comet rocket train ship boat wagon bicycle engine wheel anchor
    compass ladder rope shield sword arrow crown throne dragon giant pirate sailor farmer doctor soldier
    """.split()
)


FIRST_NAMES: tuple[str, ...] = tuple(
    """
    Alice Anna Arthur Barbara Bernard Carla Charles Clara Daniel David Diana Edward Elena Emma Eric Fiona
    Frank George Grace Hannah Harold Helen Henry Hugo Irene Isaac Jacob James Jane Joan John Julia Karen
    Karl Kate Laura Leo Lewis Linda Louis Lucy Marco Maria Martin Mary Max Michael Monica Nadia Nathan
    Nina Nora Oliver Oscar Paul Peter Philip Rachel Ralph Rebecca Richard Robert Rosa Ruth Samuel Sandra
    Sarah Simon Sophie Stella Stephen Susan Theodore Thomas Tina Victor Vincent Walter William
    """.split()
)

SURNAMES: tuple[str, ...] = tuple(
    """
    Adams Allen Anderson Bailey Baxter Bennett Bishop Boyd Bradley Burke Butler Carlson Carter Clark
    Coleman Collins Cooper Crawford Dalton Davis Dawson Dixon Duncan Edwards Elliott Evans Ferguson
    Fletcher Foster Gibson Graham Griffin Hamilton Harper Harris Hayes Hughes Hunter Jackson Jensen
    Johnson Jordan Keller Kennedy Knight Lambert Lawson Logan Marshall Mason Miller Mitchell Morgan
    Murphy Nelson Norton Owens Parker Patterson Perkins Porter Quinn Reynolds Robinson Russell Sanders
    Shaw Spencer Stevens Sullivan Thompson Turner Wagner Wallace Watson Weaver Webster Wheeler Wilson
    """.split()
)


# Common English words for RULER-style tasks: keys of needles, and lists to count in.
#
# Written for this project. Every word occurs once here and not in `WORDS`, which are nouns too.


ADJECTIVES: tuple[str, ...] = tuple(
    """
    able absent active actual agile alert amused ancient angry annual anxious ashamed awake awful bald
    bare basic beautiful bitter blank bleak blind blunt bold boring brave brief bright brisk broad broken
    busy calm careful careless cautious charming cheap cheerful clean clever clumsy coarse cold colorful
    comfortable common complete cool costly courageous cozy cruel curious curly curved damp dangerous
    daring dark dear decent deep delicate dense dirty dizzy double dreadful dry dull dusty eager early
    easy elastic elegant empty endless equal exact excited exotic expensive extra faint fair faithful
    false familiar famous fancy fast faulty fearless fertile fierce final firm flat flexible foggy foolish
    formal fragile frank free fresh friendly frosty frozen full funny fuzzy generous gentle genuine gifted
    glad gloomy glorious golden graceful grand grateful gray greedy handsome handy happy harmless harsh
    hasty healthy heavy helpful hidden hollow honest hopeful hostile huge humble hungry icy ideal idle
    immense important innocent jealous jolly joyful keen kind large late lazy lean legal level lively
    local lonely loose loud lovely loyal lucky magic major mature mellow merry mighty mild minor modern
    modest moist muddy mute mysterious narrow nasty natural neat nervous neutral nimble noble noisy normal
    novel numb odd official open ordinary outer oval pale patient peaceful perfect plain playful pleasant
    plump polite poor popular portable precious pretty prickly private proper proud prudent public pure
    puzzled quaint quick quiet random rapid rare raw ready real recent regular remote rich rigid ripe
    robust rotten rough round royal rude rural rusty sad safe salty scarce secret serious severe shallow
    sharp shiny short shy silent silly simple sincere skinny sleepy slender slim slippery slow smart
    smooth sober soft solar solid sour spare spicy spiteful splendid stale steady steep sticky stiff
    strange strict strong stubborn sturdy subtle sudden sunny superb sweet swift tall tame tart tasty
    tender tense thick thin thirsty thorough tidy tight timid tiny tired tough tragic tranquil tropical
    true typical ugly unique urban urgent useful usual vague vain valid vast vibrant violent vital vivid
    warm wary weak wealthy weary weird wicked wide wild wise witty wooden worthy wrong young zealous
    """.split()
)

NOUNS: tuple[str, ...] = tuple(
    """
    academy accident acorn actor adventure advice airport alarm album alley almond alphabet amount anchovy
    animal ankle answer antenna apartment apron arch area argument arm army artist ash aspect athlete
    attic audience aunt author avenue award axe baby badge bag bait baker balance balcony ball balloon
    bandage banjo bank banner bargain bark base basin bat bath battery battle bay beam beard beast bed bee
    beetle belief bench berry bet bishop blade blast block blouse board body bolt bomb bone book border
    boss bottom boundary bow box boy bracelet brain brake branch brass breath breeze brick bride broom
    brother brush bubble budget buffalo bug bulb bull bundle bus bush butcher cabbage cabin cabinet cable
    cactus cage cake calendar calf camera camp canal canoe cap captain car card cargo cart case cash cat
    cattle cause cave celery cellar cement century cereal chain chair chalk champion chance channel
    chapter character chart chest chicken chief child chin chocolate choice circle circus citizen city
    clay clerk client cliff clock closet cloth clown club coach coal coast cobweb coconut collar colony
    column comb comedy comfort committee company concert contest copy corner costume couch council country
    couple course court cousin cow cradle craft crayon cream creature credit creek crew cricket crime crop
    crowd crumb crystal cube culture current cushion customer cycle dairy daisy damage dancer daughter
    debt decade deer degree deluxe dentist desk dessert detail device diary dictionary dinner dinosaur
    direction disease dish distance ditch doll dollar donkey doorway dot dream dress drink driver duty
    dwarf dye ear earth edge editor egg elbow election elevator emperor energy entrance equator error
    escape essay estate evening event example expert explorer eye eyebrow fabric face factory faith family
    fan fang farewell father faucet fear feast feather fence ferry festival fever fiction field figure
    film finger fire fish fist flag flame flavor fleece flesh flood floor flour flower fog food foot force
    fossil fountain frame freight friend fruit fuel fur furniture future gallery game gang garage gas gate
    gem general genius geography ghost girl glass globe glue goal god gold golf gorilla governor grade
    grain gram grandmother grass gravel gravity grease grocery ground group guard guest guide gum gun gym
    habit hair haircut hall ham hamster hand handle harmony harp harvest head health heart heat heaven
    hedge heel height hen herb hero herring highway hill hint history hobby hole holiday honor hood hook
    hope horn host hotel hour house human humor hunter hurricane husband ice icicle idea image inch income
    industry ink insect instrument iris ivory ivy jail jam jar jaw jelly jewel joke journey judge juice
    jungle junk jury key kid kidney kingdom kiss kite kitten knee knight knot laborer lace lad lamb land
    lane language lap laundry law lawn lawyer layer lead leader leaf league lemonade lesson lettuce lid
    life limit line linen lip liquid list lizard loaf lobby lock locket log lotion lumber lunch lung
    machine magazine magician magnet maid mail mall manager map march margin marigold mask master match
    material maze meal measure meat medal medicine melody melon member memory mess metal meter method
    middle midnight mile milk mind mine minister mint minute mission mistake mitten model moment money
    month mood morning mosquito moss mother motion motor mouse mouth movie mud mule muscle mushroom music
    mustard mystery napkin nation neck neighbor nephew nerve nest net network news night noise noon north
    nose note notebook number nurse nut oatmeal object office oil olive opera orange orchard orchestra
    organ orphan ostrich oven owner package pad page paint painter pair pan pancake panther parade parcel
    parent park parsley part partner party passenger pasta paste path patience patrol pattern pavement paw
    payment peanut pear peasant pebble pedal peel pen people person pest pet phone photo physics pickle
    picnic picture pie pig pile pill pilot pin pint pipe pizza place plan planter plastic platform play
    pleasure plot plough pocket poem poet point poison pole police polish pond pony pool popcorn porch
    porter position post pot poultry powder power prairie prayer president price pride priest prince
    princess prize problem product professor profit program proof property prose protest puddle pump
    pumpkin pupil puppet puppy puzzle quail quality quarry quarter queen question quill quilt quince
    quiver raccoon race rack radio radish raft rail raisin rake ranch range rat rate razor reason receipt
    recipe record reef region relative religion rent reptile result reward rhythm rib riddle rifle ring
    ritual road robin robot rod roll room rooster root rose route routine row rubber rug rule sack saddle
    sail salad sale sand sandal sandwich sauce saucer sausage scale scarecrow scarf scene scent science
    scissors scooter score screw sea seal season seat seaweed second secretary seed servant shade shadow
    shape shelf shell shelter sheriff shoulder shovel shower shrimp side sidewalk sign signal sink sister
    skate ski skin skirt skull sky sled sleeve slipper slope smile smoke snail soap society soda sofa soil
    solution song sort soul sound soup south space spade spark spice spinach spirit sponge sport spot
    spray square squash squid stable stage staircase star statement station statue steak steam stem step
    stick stomach stone stool stop store story stove stranger straw stream street string structure student
    studio substance suburb subway success suit suitcase surface surgeon surprise swamp swan sweater syrup
    system table tablet tail tailor talent tank tape target task taxi tea teacher team tear teaspoon teeth
    telephone temper tendency tennis tent territory test textbook texture theory thing thistle throat
    thumb ticket tide tie tile timber time title toad toast toe toilet tongue tool tooth top torch touch
    towel town toy trade tradition traffic trail trap tray treasure tree trial tribe trick trip trolley
    truck trunk truth tub tube tulip tunnel turkey turnip twig twist type umbrella uncle uniform union
    unit universe value van vase vegetable veil vein verse vessel vest victory view village vine vinegar
    virus visitor voice vote voyage waffle waist waiter walnut walrus war warrior washer wasp waste watch
    water wave wax way wealth weapon weather wedding weed week weight west whip wife wilderness wine wing
    winner wire wish witch woman wood word work worker workshop world worm wound wrench wrist writer yard
    yarn year yogurt zebra zipper zoo
    """.split()
)

VERBS: tuple[str, ...] = tuple(
    """
    accept accuse achieve admire admit adopt advise agree allow announce apologize appear applaud approve
    arrange arrive ask assist attach attack attend avoid bake bathe become beg begin behave believe belong
    bleach bless blink blush boast boil borrow bounce breathe bring build burn bury buy calculate carry
    carve catch celebrate chase chew choose chop clap climb cling collect combine command compare compete
    complain confess confuse connect consider contain continue convince cook correct cough cover crawl
    create creep cross cry dance dare decay decide decorate defend delay deliver deny depend describe
    deserve destroy develop dig disagree disappear discover dive divide donate doubt drag draw drift drill
    drip drown earn eat educate embarrass employ encourage enjoy enter entertain examine excuse exist
    expand expect explain explode extend fade fail fasten fetch fight fill find float flow fold follow
    forbid forget forgive freeze frighten gather gaze give glow grab greet grin grip grow guess hang
    happen harm hatch haunt heal hear help hesitate hide hop hover hug hum hunt hurry identify ignore
    imagine impress improve include increase inform inject injure instruct intend interrupt introduce
    invent invite irritate itch jog join juggle jump justify kick kneel knit knock label laugh launch
    learn leave lend lick lift like listen live look lose love manage marry melt memorize mend mix moan
    mourn move multiply mumble murder need nod notice obey observe obtain occur offend offer operate order
    overflow owe pack pardon pause pay perform permit persuade pinch plant plead please poke possess pour
    practice praise pray preach prefer prepare present preserve pretend prevent produce promise pronounce
    protect prove provide pull punish push quit raise reach realize receive recognize refuse regret reign
    reject rejoice relax release remain remember remind remove repair repeat replace reply rescue retire
    return rhyme ride rinse risk roar rob rub ruin rush satisfy save scare scatter scold scorch scrape
    scratch scream scribble scrub search select sell send separate serve settle sew share shave shiver
    shout shrink shrug shut sigh sing skip slap sleep slide slip smash smell snatch sneeze sniff snore
    soak solve speak spell spend spill spin spoil squeak squeeze stain stand stare stay steal steer stir
    stitch stretch strike strip struggle stumble subtract suffer suggest support suppose suspect suspend
    swallow swear sweep swell swim swing talk teach tease tempt terrify thank think throw tickle tip tow
    trace travel tremble trot trouble trust try tug tumble undress unite unlock unpack vanish visit wail
    wait wake walk wander want warn wash weave weep weigh welcome whine whirl whisper win wink wipe wonder
    worry wrap wreck wrestle wriggle yawn yell yield zoom
    """.split()
)


# Keyed choices: the same key gives the same picks on every machine, in every Python and any order.


T = TypeVar("T")


class Choices:
    """A stream of 64-bit integers, sha256(key, counter), and the picks made from it."""

    def __init__(self, *key: str | int) -> None:
        self._key = "/".join(map(str, key)).encode()
        self._counter = 0

    def below(self, bound: int) -> int:
        """An integer in [0, bound); the bias of the remainder, bound / 2**64, does not matter here."""
        digest = hashlib.sha256(self._key + b"#%d" % self._counter).digest()
        self._counter += 1
        return int.from_bytes(digest[:8], "big") % bound

    def uniform(self) -> float:
        """A number in [0, 1) with 53 bits."""
        return self.below(2**53) / 2**53

    def pick(self, items: Sequence[T]) -> T:
        """One item."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> Iterator[T]:
        """The items in random order, drawn one by one (a Fisher-Yates shuffle)."""
        pool = list(items)
        for place in range(len(pool)):
            other = place + self.below(len(pool) - place)
            pool[place], pool[other] = pool[other], pool[place]
            yield pool[place]

    def sample(self, items: Sequence[T], size: int) -> list[T]:
        """`size` different items in random order."""
        return list(islice(self.shuffled(items), size))
